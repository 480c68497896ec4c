/** A file says what it holds; a drawer for everything says nothing. */
import type { Violation } from './source.js'

const DRAWER = /(^|[/.-])(utils?|helpers?|misc|common)([/.-]|$)/i

export function checkName(path: string): Violation[] {
  if (!DRAWER.test(path)) return []
  return [{ file: path, line: 1, rule: 'no-utils', message: 'name the file after the one idea that it holds' }]
}
