/** One source file as the house rules see it: what it imports, its syntax tree, and lines for messages. */
import { dirname, posix } from 'node:path'
import { type Node, type ParseResult, parseSync, visitorKeys } from 'oxc-parser'

/** An import, a re-export, a dynamic `import()` or an `import('…')` type. */
export interface Import {
  readonly specifier: string
  /** Erased by the compiler: it can neither run code nor close a cycle at run time. */
  readonly typeOnly: boolean
  readonly line: number
  /** The names taken from the module; `*` for a namespace. */
  readonly names: readonly string[]
}

/** A place where a rule is broken. */
export interface Violation {
  readonly file: string
  readonly line: number
  readonly rule: string
  readonly message: string
}

export interface SourceFile {
  /** From the root of the repository, with forward slashes: `src/core/clock.ts`. */
  readonly path: string
  readonly program: Node
  readonly imports: readonly Import[]
  lineOf(offset: number): number
}

export type AnyNode = Node & Readonly<Record<string, unknown>>

/** Parses one file. Throws when it is not valid TypeScript. */
export function parseSource(path: string, text: string): SourceFile {
  const result = parseSync(path, text, { sourceType: 'module' })
  const problem = result.errors.find(({ severity }) => severity === 'Error')
  const lineOf = lineFinder(text)
  if (problem) throw new SyntaxError(`${path}:${lineOf(problem.labels[0]?.start ?? 0)} ${problem.message}`)
  return { path, program: result.program as Node, imports: importsOf(result, lineOf), lineOf }
}

/** Calls `visit` for each node; a `false` from it leaves out what is below. */
export function walk(node: Node, visit: (node: AnyNode, parent?: AnyNode, key?: string) => boolean): void {
  descend(node as AnyNode, undefined, undefined, visit)
}

function descend(
  node: AnyNode,
  parent: AnyNode | undefined,
  key: string | undefined,
  visit: (node: AnyNode, parent?: AnyNode, key?: string) => boolean,
): void {
  if (!visit(node, parent, key)) return
  for (const childKey of visitorKeys[node.type] ?? []) {
    const child = node[childKey]
    for (const each of Array.isArray(child) ? child : [child]) {
      if (typeof each === 'object' && each !== null) descend(each as AnyNode, node, childKey, visit)
    }
  }
}

/** The file that a relative specifier names: TypeScript says `.js` and means `.ts`. */
export function resolveRelative(from: string, specifier: string): string {
  return posix.join(dirname(from), specifier).replace(/\.js$/, '.ts')
}

function importsOf({ program }: ParseResult, lineOf: (offset: number) => number): Import[] {
  const imports: Import[] = []
  walk(program as Node, (node) => {
    const found = importIn(node)
    if (found) imports.push({ ...found, line: lineOf(node.start) })
    return true
  })
  return imports
}

function importIn(node: AnyNode): Omit<Import, 'line'> | undefined {
  switch (node.type) {
    case 'ImportDeclaration':
      return {
        specifier: node.source.value,
        typeOnly: node.importKind === 'type',
        names: node.specifiers.map((each) => (each.type === 'ImportSpecifier' ? nameOf(each.imported) : '*')),
      }
    case 'ExportNamedDeclaration':
      if (node.source === null) return undefined
      return {
        specifier: node.source.value,
        typeOnly: node.exportKind === 'type',
        names: node.specifiers.map((each) => nameOf(each.local)),
      }
    case 'ExportAllDeclaration':
      return { specifier: node.source.value, typeOnly: node.exportKind === 'type', names: ['*'] }
    case 'ImportExpression':
      return { specifier: literalOf(node.source as AnyNode), typeOnly: false, names: ['*'] }
    case 'TSImportType':
      return { specifier: node.source.value, typeOnly: true, names: ['*'] }
    default:
      return undefined
  }
}

function nameOf(name: { readonly name?: string; readonly value?: string }): string {
  return name.name ?? name.value ?? '*'
}

/** The text of a literal; of anything else a mark that no layer allows, since nobody can tell where it leads. */
function literalOf(node: AnyNode): string {
  return node.type === 'Literal' && typeof node.value === 'string' ? node.value : '(computed)'
}

function lineFinder(text: string): (offset: number) => number {
  const starts = [0]
  for (let at = text.indexOf('\n'); at !== -1; at = text.indexOf('\n', at + 1)) starts.push(at + 1)
  return (offset) => starts.findLastIndex((start) => start <= offset) + 1
}
