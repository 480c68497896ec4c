/** Text that somebody else has chosen, made fit for a terminal. */

/**
 * Controls, which may move the cursor or recolour what follows; format characters, which may reverse it; separators that
 * break a line; half characters.
 */
const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu

/** Each character that a terminal might obey is shown as its escape: `\x1b`, `\u{202e}`. */
export function printable(text: string): string {
  return text.replace(UNPRINTABLE, escaped)
}

/** The same for a text of several lines, which stay lines. */
export function printableLines(text: string): string {
  return text.split('\n').map(printable).join('\n')
}

function escaped(character: string): string {
  const code = character.codePointAt(0) as number
  const hex = code.toString(16)
  return code < 0x100 ? `\\x${hex.padStart(2, '0')}` : `\\u{${hex}}`
}
