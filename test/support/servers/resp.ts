/**
 * The framing of RESP, the protocol of Redis: RESP2 and RESP3, both directions, in whatever chunks it comes.
 *
 * A frame keeps the bytes that it came in, so that they can be passed on as they were.
 */

/** A value as it was on the wire. Aggregates have `items`: a map its keys and values in turn. */
export interface RespValue {
  /** The first byte: `+`, `-`, `:`, `$`, `*`, and with RESP3 `_`, `,`, `#`, `(`, `!`, `=`, `%`, `~`, `>`, `|`. */
  readonly type: string
  /** What a scalar says; empty for null. */
  readonly text: Buffer
  readonly items: readonly RespValue[]
}

export interface RespFrame {
  readonly bytes: Buffer
  readonly value: RespValue
}

interface OpenAggregate {
  readonly type: string
  readonly text: Buffer
  readonly items: RespValue[]
  readonly size: number
}

const NOTHING = Buffer.alloc(0)
const LINE_END = Buffer.from('\r\n')
const LINES = '+-:_,#('
const BLOBS = '$!='
const AGGREGATES = '*~>%|'

/** Cuts a stream of bytes into frames. */
export class RespFramer {
  readonly #allowsInline: boolean
  #buffer: Buffer = NOTHING
  /** Up to here the buffer has been read, into the aggregates that are open. */
  #at = 0
  /** Chunks behind the buffer, left alone until there is enough for a large blob: copying each time would add up. */
  #chunks: Buffer[] = []
  #length = 0
  #needed = 0
  readonly #open: OpenAggregate[] = []

  /** @param allowsInline Whether a line may be a command, as clients may send it. */
  constructor({ allowsInline = false }: { readonly allowsInline?: boolean } = {}) {
    this.#allowsInline = allowsInline
  }

  /** The frames that this chunk completes. Throws on what is not RESP. */
  push(chunk: Buffer): RespFrame[] {
    this.#chunks.push(chunk)
    this.#length += chunk.length
    if (this.#length < this.#needed) return []
    this.#buffer = this.#chunks.length === 1 ? chunk : Buffer.concat(this.#chunks)
    const frames: RespFrame[] = []
    for (let value = this.#next(); value !== undefined; value = this.#next()) {
      const whole = this.#place(value)
      if (whole === undefined) continue
      frames.push({ bytes: this.#buffer.subarray(0, this.#at), value: whole })
      this.#buffer = this.#buffer.subarray(this.#at)
      this.#at = 0
    }
    this.#chunks = this.#buffer.length === 0 ? [] : [this.#buffer]
    this.#length = this.#buffer.length
    return frames
  }

  /** Reads the next line, blob or head of an aggregate; undefined when it is not all there. */
  #next(): RespValue | undefined {
    const from = this.#at
    const lineEnd = this.#buffer.indexOf(LINE_END, from)
    if (lineEnd < 0) return undefined
    const type = String.fromCharCode(this.#buffer[from] ?? 0)
    const text = this.#buffer.subarray(from + 1, lineEnd)
    if (BLOBS.includes(type)) return this.#blob(type, lineEnd + LINE_END.length, lengthOf(text))
    this.#at = lineEnd + LINE_END.length
    if (LINES.includes(type) || AGGREGATES.includes(type)) return { type, text, items: [] }
    const line = this.#buffer.subarray(from, lineEnd).toString('latin1')
    if (!this.#allowsInline || this.#open.length > 0) throw new Error(`not RESP: ${JSON.stringify(line)}`)
    return inlineCommand(line)
  }

  #blob(type: string, from: number, length: number): RespValue | undefined {
    // Null, as RESP2 says it.
    const end = length < 0 ? from : from + length + LINE_END.length
    this.#needed = end
    if (this.#buffer.length < end) return undefined
    this.#needed = 0
    this.#at = end
    return { type, text: this.#buffer.subarray(from, from + Math.max(0, length)), items: [] }
  }

  /** Puts a value where it belongs; returns the whole that it completes, if any. */
  #place(value: RespValue): RespValue | undefined {
    const size = sizeOf(value)
    if (size > 0) {
      this.#open.push({ type: value.type, text: NOTHING, items: [], size })
      return undefined
    }
    let done = value
    for (;;) {
      // An attribute is said about the value behind it, and is of one frame with it.
      if (done.type === '|') return undefined
      const parent = this.#open.at(-1)
      if (parent === undefined) return done
      parent.items.push(done)
      if (parent.items.length < parent.size) return undefined
      this.#open.pop()
      done = parent
    }
  }
}

/** How many values are to come for this one. A null array has none. */
function sizeOf({ type, text, items }: RespValue): number {
  if (!AGGREGATES.includes(type) || items.length > 0) return 0
  return Math.max(0, lengthOf(text)) * (type === '%' || type === '|' ? 2 : 1)
}

function lengthOf(line: Buffer): number {
  const length = Number(line.toString())
  if (line.length === 0 || !Number.isInteger(length))
    throw new Error(`not a length: ${JSON.stringify(line.toString())}`)
  return length
}

/** What a person types into a terminal: words in a line. */
function inlineCommand(line: string): RespValue {
  const words = line.split(/\s+/).filter(Boolean)
  const items = words.map((word) => ({ type: '$', text: Buffer.from(word, 'latin1'), items: [] }))
  return { type: '*', text: Buffer.from('0'), items }
}
