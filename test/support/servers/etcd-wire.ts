/** Just enough of protocol buffers to see what a request asks for and what the server said to it. */

/** A field of a message: its number, and what stands there. */
type Field = readonly [number: number, value: number | Buffer]

const VARINT = 0
const FIXED64 = 1
const BYTES = 2
const FIXED32 = 5

/** What a range request asks for. */
export interface RangeAsked {
  readonly key: string
  /** Empty for a single key. */
  readonly end: string
  /** 0 for no limit. */
  readonly limit: number
  readonly isSorted: boolean
  readonly countOnly: boolean
}

/** What a transaction asks for, with all that the transactions within it do. */
export interface TxnAsked {
  readonly compares: number
  /** How many operations each branch has itself. */
  readonly success: number
  readonly failure: number
  readonly ranges: readonly RangeAsked[]
  /** The keys that either branch writes, with the sizes of what is written. */
  readonly puts: readonly PutAsked[]
  readonly deletes: readonly string[]
  /** The transactions in each branch. */
  readonly within: { readonly success: readonly TxnAsked[]; readonly failure: readonly TxnAsked[] }
}

interface PutAsked {
  readonly key: string
  readonly bytes: number
}

export interface TxnAnswered {
  readonly succeeded: boolean
  /** How many keys the ranges of the branches that ran have answered. */
  readonly keys: number
  readonly within: readonly TxnAnswered[]
}

export function rangeAsked(message: Buffer): RangeAsked {
  const fields = fieldsOf(message)
  return {
    key: text(fields, 1),
    end: text(fields, 2),
    limit: integer(fields, 3),
    isSorted: integer(fields, 5) !== 0,
    countOnly: integer(fields, 9) !== 0,
  }
}

/** How many keys an answer to a range request has. */
export function keysAnswered(message: Buffer): number {
  return nested(fieldsOf(message), 2).length
}

export function txnAsked(message: Buffer): TxnAsked {
  const fields = fieldsOf(message)
  const [success, failure] = [nested(fields, 2), nested(fields, 3)]
  const operations = [...success, ...failure].map((each) => fieldsOf(each))
  const asked = (number: number) => operations.flatMap((operation) => nested(operation, number))
  const within = { success: txnsAmong(success), failure: txnsAmong(failure) }
  const inner = [...within.success, ...within.failure]
  return {
    compares: nested(fields, 1).length,
    success: success.length,
    failure: failure.length,
    ranges: [...asked(1).map(rangeAsked), ...inner.flatMap(({ ranges }) => ranges)],
    puts: [...asked(2).map(putAsked), ...inner.flatMap(({ puts }) => puts)],
    deletes: [...asked(3).map((each) => text(fieldsOf(each), 1)), ...inner.flatMap(({ deletes }) => deletes)],
    within,
  }
}

export function txnAnswered(message: Buffer): TxnAnswered {
  const fields = fieldsOf(message)
  const answers = nested(fields, 3).map((response) => fieldsOf(response))
  const ranges = answers.flatMap((answer) => nested(answer, 1)).map(keysAnswered)
  const within = answers.flatMap((answer) => nested(answer, 4)).map(txnAnswered)
  return {
    succeeded: integer(fields, 2) !== 0,
    keys: [...ranges, ...within.map(({ keys }) => keys)].reduce((sum, count) => sum + count, 0),
    within,
  }
}

/**
 * Whether a transaction has done nothing of what it was for because another was faster: its conditions did not hold, and
 * neither did those of any alternative within it.
 */
export function isLost(asked: TxnAsked, answered: TxnAnswered): boolean {
  const { success, failure } = asked.within
  const inner = (answered.succeeded ? success : failure)
    .map((each, index) => [each, answered.within[index] as TxnAnswered] as const)
    .filter(([each]) => isConditional(each))
  const lost = inner.filter(([each, answer]) => isLost(each, answer))
  if (asked.compares > 0 && !answered.succeeded) return lost.length === inner.length
  return lost.length > 0
}

function isConditional({ compares, within }: TxnAsked): boolean {
  return compares > 0 || [...within.success, ...within.failure].some(isConditional)
}

function txnsAmong(operations: readonly Buffer[]): TxnAsked[] {
  return operations.flatMap((operation) => nested(fieldsOf(operation), 4)).map(txnAsked)
}

function putAsked(message: Buffer): PutAsked {
  const fields = fieldsOf(message)
  return { key: text(fields, 1), bytes: nested(fields, 2)[0]?.length ?? 0 }
}

function fieldsOf(message: Buffer): Field[] {
  const fields: Field[] = []
  let at = 0
  const varint = (): number => {
    let value = 0
    for (let factor = 1; ; factor *= 128) {
      const byte = message[at++]
      if (byte === undefined) throw new Error('a message ends in the middle of a number')
      value += (byte & 0x7f) * factor
      if (byte < 128) return value
    }
  }
  const bytes = (length: number): Buffer => {
    at += length
    if (at > message.length) throw new Error('a message ends in the middle of a field')
    return message.subarray(at - length, at)
  }
  while (at < message.length) {
    const tag = varint()
    const [number, type] = [Math.floor(tag / 8), tag % 8]
    if (type === VARINT) fields.push([number, varint()])
    else if (type === BYTES) fields.push([number, bytes(varint())])
    else if (type === FIXED64) fields.push([number, bytes(8)])
    else if (type === FIXED32) fields.push([number, bytes(4)])
    else throw new Error(`no field of a message is of type ${type}`)
  }
  return fields
}

function nested(fields: readonly Field[], wanted: number): Buffer[] {
  return fields.flatMap(([number, value]) => (number === wanted && typeof value !== 'number' ? [value] : []))
}

function text(fields: readonly Field[], number: number): string {
  return nested(fields, number)[0]?.toString() ?? ''
}

function integer(fields: readonly Field[], wanted: number): number {
  const value = fields.find(([number]) => number === wanted)?.[1]
  return typeof value === 'number' ? value : 0
}
