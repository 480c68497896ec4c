/**
 * Options are closed lists: what is not known, and what is out of range, is refused before any I/O.
 */
import { InvalidOptionError } from './errors.js'

/** Throws `InvalidOptionError` naming the field when the value will not do. */
export type Rule = (value: unknown, field: string) => void

/** Checks an options object: every key is known and every value that is there fits its rule. */
export function checkOptions(options: unknown, what: string, rules: Readonly<Record<string, Rule>>): void {
  if (options === undefined) return
  record(options, what)
  for (const [name, value] of Object.entries(options as object)) {
    const rule = Object.hasOwn(rules, name) ? rules[name] : undefined
    const field = `${what}.${name}`
    if (!rule) throw new InvalidOptionError(field, value, `one of the known options (${Object.keys(rules).join(', ')})`)
    if (value !== undefined) rule(value, field)
  }
}

/** Any plain object; the members are not looked at. */
export const record: Rule = (value, field) => {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new InvalidOptionError(field, value, 'an object')
}

export function integer(minimum: number, maximum = Number.MAX_SAFE_INTEGER): Rule {
  const expected =
    maximum === Number.MAX_SAFE_INTEGER
      ? `a whole number of ${minimum} or more`
      : `a whole number from ${minimum} to ${maximum}`
  return (value, field) => {
    if (!Number.isSafeInteger(value) || (value as number) < minimum || (value as number) > maximum) {
      throw new InvalidOptionError(field, value, expected)
    }
  }
}

/** A duration in milliseconds; fractions are fine. */
export function duration(minimumMs: number): Rule {
  return (value, field) => {
    if (typeof value !== 'number' || !Number.isFinite(value) || value < minimumMs) {
      throw new InvalidOptionError(field, value, `a finite number of milliseconds, ${minimumMs} or more`)
    }
  }
}

/** A finite number of milliseconds of either sign. */
export const delay: Rule = (value, field) => {
  if (typeof value !== 'number' || !Number.isFinite(value))
    throw new InvalidOptionError(field, value, 'a finite number of milliseconds')
}

export function number(minimum: number, maximum: number): Rule {
  return (value, field) => {
    if (typeof value !== 'number' || !(value >= minimum && value <= maximum)) {
      throw new InvalidOptionError(field, value, `a number from ${minimum} to ${maximum}`)
    }
  }
}

export const boolean: Rule = (value, field) => {
  if (typeof value !== 'boolean') throw new InvalidOptionError(field, value, 'true or false')
}

/** A name: a string that is not empty, well formed, and of at most 512 bytes. */
export const name: Rule = (value, field) => {
  if (typeof value !== 'string' || value === '' || Buffer.byteLength(value) > 512 || !wellFormed(value)) {
    throw new InvalidOptionError(field, value, 'a non-empty well-formed string of at most 512 bytes')
  }
}

export function oneOf(...choices: readonly string[]): Rule {
  return (value, field) => {
    if (typeof value !== 'string' || !choices.includes(value)) {
      throw new InvalidOptionError(field, value, `one of ${choices.map((choice) => `'${choice}'`).join(', ')}`)
    }
  }
}

/** A function. */
export const callable: Rule = (value, field) => {
  if (typeof value !== 'function') throw new InvalidOptionError(field, value, 'a function')
}

/** An abort signal of any realm or polyfill. */
export const abortSignal: Rule = (value, field) => {
  const candidate = value as { aborted?: unknown; addEventListener?: unknown } | null
  if (
    typeof candidate !== 'object' ||
    typeof candidate?.aborted !== 'boolean' ||
    typeof candidate.addEventListener !== 'function'
  ) {
    throw new InvalidOptionError(field, value, 'an AbortSignal')
  }
}

/** An object that has these methods. */
export function has(kind: string, ...methods: readonly string[]): Rule {
  return (value, field) => {
    const candidate = value as Record<string, unknown> | null
    const fits =
      (typeof value === 'object' || typeof value === 'function') &&
      candidate !== null &&
      methods.every((method) => typeof candidate[method] === 'function')
    if (!fits) throw new InvalidOptionError(field, value, kind)
  }
}

/** A record of strings. */
export const headers: Rule = (value, field) => {
  record(value, field)
  for (const [key, item] of Object.entries(value as object)) {
    if (typeof item !== 'string') throw new InvalidOptionError(`${field}.${key}`, item, 'a string')
  }
}

/** A nested closed list. */
export function options(rules: Readonly<Record<string, Rule>>): Rule {
  return (value, field) => {
    record(value, field)
    checkOptions(value, field, rules)
  }
}

function wellFormed(text: string): boolean {
  // A lone surrogate would be stored as a replacement character: two different names could become one.
  return !/[\uD800-\uDBFF](?![\uDC00-\uDFFF])|(?<![\uD800-\uDBFF])[\uDC00-\uDFFF]/.test(text)
}
