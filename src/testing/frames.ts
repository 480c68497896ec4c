/**
 * Compares what a marble test saw with what it expected, and says where they differ.
 */
import { AssertionError } from 'node:assert'
import { isDeepStrictEqual } from 'node:util'

/** Throws when the two differ. Both are lists of messages or of subscription windows, as RxJS makes them. */
export function assertFrames(actual: unknown, expected: unknown): void {
  const [seen, wanted] = [plain(actual), plain(expected)]
  if (isDeepStrictEqual(seen, wanted)) return
  throw new AssertionError({
    message: `marbles differ\n  expected ${describe(wanted)}\n  actual   ${describe(seen)}`,
    actual: seen,
    expected: wanted,
    operator: 'deepStrictEqual',
  })
}

interface Frame {
  readonly frame?: number
  readonly notification?: { readonly kind: string; readonly value?: unknown; readonly error?: unknown }
  readonly subscribedFrame?: number
  readonly unsubscribedFrame?: number
}

/** Without the classes and the extra fields that only one side has. */
function plain(list: unknown): unknown {
  if (!Array.isArray(list)) return list
  return list.map((entry: Frame) => {
    if (entry.subscribedFrame !== undefined) return { from: entry.subscribedFrame, to: entry.unsubscribedFrame }
    const { kind, value, error } = entry.notification ?? { kind: '?' }
    return { frame: entry.frame, kind, ...(kind === 'N' && { value }), ...(kind === 'E' && { error }) }
  })
}

function describe(list: unknown): string {
  if (!Array.isArray(list)) return String(list)
  const parts = list.map(
    (entry: { frame?: number; kind?: string; value?: unknown; error?: unknown; from?: number; to?: number }) => {
      if (entry.from !== undefined) return `${entry.from}..${entry.to}`
      if (entry.kind === 'N') return `${entry.frame}:${show(entry.value)}`
      return entry.kind === 'C' ? `${entry.frame}:|` : `${entry.frame}:# ${show(entry.error)}`
    },
  )
  return `[${parts.join('  ')}]`
}

function show(value: unknown): string {
  if (value instanceof Error) return value.message
  return typeof value === 'object' ? JSON.stringify(value) : String(value)
}
