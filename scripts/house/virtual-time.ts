/**
 * In core, operators and sinks all time comes from a scheduler, so that a whole pipeline runs in a `TestScheduler`.
 *
 * Native timers and clocks would read real time there; `await`, async functions and native promises would continue in
 * microtasks, which virtual time never runs. `src/core/clock.ts` is the one door to the real ones.
 */
import { type AnyNode, type SourceFile, type Violation, walk } from './source.js'

const VIRTUAL = /^src\/(core|operators|sinks)\//
const DOOR = 'src/core/clock.ts'

const NATIVE_GLOBALS = new Set([
  'setTimeout',
  'setInterval',
  'setImmediate',
  'clearTimeout',
  'clearInterval',
  'clearImmediate',
  'queueMicrotask',
  'performance',
  'requestAnimationFrame',
])
const NATIVE_MEMBERS = new Set([
  'Date.now',
  'AbortSignal.timeout',
  'process.nextTick',
  'process.hrtime',
  'process.uptime',
  'Promise.all',
  'Promise.allSettled',
  'Promise.any',
  'Promise.race',
  'Promise.reject',
  'Promise.resolve',
])
const GLOBAL_OBJECTS = new Set(['globalThis', 'global', 'window', 'self'])
const NATIVE_MODULES = new Set(['timers', 'timers/promises', 'perf_hooks'])
/** Schedulers of RxJS that tell real time; all else of RxJS takes a scheduler as an argument. */
const NATIVE_SCHEDULERS = new Set(['asyncScheduler', 'asapScheduler', 'animationFrameScheduler', 'async', 'asap'])

/** Where one file reaches for native time. Files of other layers have none. */
export function checkVirtualTime(file: SourceFile): Violation[] {
  if (!VIRTUAL.test(file.path) || file.path === DOOR) return []
  const found: Violation[] = nativeImports(file)
  walk(file.program, (node, parent, key) => {
    if (isErased(node, key)) return false
    const problem = asyncIn(node) ?? nativeTimeIn(node, parent, key)
    if (problem) found.push({ file: file.path, line: file.lineOf(node.start), ...problem })
    return true
  })
  return found
}

type Problem = Pick<Violation, 'rule' | 'message'>

function asyncIn(node: AnyNode): Problem | undefined {
  const what = asyncSyntaxOf(node)
  return what === undefined ? undefined : { rule: 'no-await', message: `${what} leaves virtual time` }
}

function asyncSyntaxOf(node: AnyNode): string | undefined {
  if (node.type === 'AwaitExpression') return 'await'
  if (node.type === 'ForOfStatement' && node.await) return 'for await'
  if (node.type === 'VariableDeclaration' && node.kind === 'await using') return 'await using'
  return node['async'] === true ? 'an async function' : undefined
}

function nativeTimeIn(node: AnyNode, parent?: AnyNode, key?: string): Problem | undefined {
  const what = nativeTimeOf(node, parent, key)
  return what === undefined ? undefined : { rule: 'no-native-time', message: `${what} does not run in virtual time` }
}

function nativeTimeOf(node: AnyNode, parent?: AnyNode, key?: string): string | undefined {
  switch (node.type) {
    case 'Identifier':
      return NATIVE_GLOBALS.has(node.name) && isReference(parent, key) ? node.name : undefined
    case 'MemberExpression':
      return nativeMemberOf(node)
    case 'NewExpression':
      return nativeConstructionOf(node)
    case 'CallExpression':
      return isNamed(node.callee, 'Date') ? 'Date()' : undefined
    default:
      return undefined
  }
}

function nativeMemberOf(node: AnyNode): string | undefined {
  const object = globalNameOf(node['object'] as AnyNode)
  const name = memberName(node)
  if (object === undefined || name === undefined) return undefined
  if (GLOBAL_OBJECTS.has(object) && NATIVE_GLOBALS.has(name)) return `${object}.${name}`
  return NATIVE_MEMBERS.has(`${object}.${name}`) ? `${object}.${name}` : undefined
}

/** `Date`, also when it is written `globalThis.Date`. */
function globalNameOf(node: AnyNode): string | undefined {
  if (node.type === 'Identifier') return node.name
  if (node.type !== 'MemberExpression') return undefined
  const object = (node.object as AnyNode)['name']
  return GLOBAL_OBJECTS.has(String(object)) ? memberName(node) : undefined
}

/** `new Date(instant)` only converts; without arguments it reads the wall clock. */
function nativeConstructionOf(node: AnyNode): string | undefined {
  if (isNamed(node['callee'], 'Promise')) return 'new Promise'
  return isNamed(node['callee'], 'Date') && (node['arguments'] as unknown[]).length === 0 ? 'new Date()' : undefined
}

function memberName(node: AnyNode): string | undefined {
  const property = node['property'] as AnyNode
  if (!node['computed']) return property['name'] as string
  return property.type === 'Literal' && typeof property.value === 'string' ? property.value : undefined
}

function isNamed(node: unknown, name: string): boolean {
  return (node as AnyNode).type === 'Identifier' && (node as AnyNode)['name'] === name
}

/** Whether an identifier stands for a value, rather than naming a member, a property or an import. */
function isReference(parent?: AnyNode, key?: string): boolean {
  if (parent === undefined) return true
  if (key === 'property') return parent['computed'] === true
  if (key === 'key') return parent['computed'] === true
  return !/^(Import|Export)\w*Specifier$/.test(parent.type)
}

/** Types do not run. */
function isErased(node: AnyNode, key?: string): boolean {
  if (node.type === 'TSInterfaceDeclaration' || node.type === 'TSTypeAliasDeclaration') return true
  return /^(typeAnnotation|returnType|typeParameters|typeArguments|superTypeArguments|implements)$/.test(key ?? '')
}

function nativeImports(file: SourceFile): Violation[] {
  return file.imports.flatMap(({ specifier, names, line, typeOnly }) => {
    if (typeOnly) return []
    const module = specifier.replace(/^node:/, '')
    const taken = NATIVE_MODULES.has(module) ? [specifier] : names.filter((name) => isNativeScheduler(specifier, name))
    return taken.map((what) => ({
      file: file.path,
      line,
      rule: 'no-native-time',
      message: `${what} does not run in virtual time`,
    }))
  })
}

function isNativeScheduler(specifier: string, name: string): boolean {
  return specifier === 'rxjs' && NATIVE_SCHEDULERS.has(name)
}
