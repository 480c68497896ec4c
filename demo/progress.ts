/**
 * How far the audit is, on stderr: a bar on a terminal, a plain line now and then in a log.
 */
import { delay, run } from 'abort-controller-x'

export interface Standing {
  readonly done: number
  readonly dead: number
  readonly found: number
}

export interface ProgressOptions {
  readonly stream: NodeJS.WriteStream
  readonly standing: () => Promise<Standing>
}

const BAR_EVERY_MS = 80
const LINE_EVERY_MS = 1_000
const BAR_WIDTH = 30
const CLEAR_LINE = '\r\x1b[K'

/** Shows the standing until the function that it answers is called; that fulfils when nothing more will be written. */
export function showProgress({ stream, standing }: ProgressOptions): () => Promise<void> {
  const everyMs = stream.isTTY ? BAR_EVERY_MS : LINE_EVERY_MS
  return run(async (signal) => {
    try {
      while (true) {
        stream.write(stream.isTTY ? CLEAR_LINE + bar(await standing()) : `${line(await standing())}\n`)
        await delay(signal, everyMs)
      }
    } finally {
      if (stream.isTTY) stream.write(CLEAR_LINE)
    }
  })
}

export function line({ done, dead, found }: Standing): string {
  return `audited ${done} of ${found}, ${dead} dead letters`
}

export function bar(standing: Standing): string {
  const { done, dead, found } = standing
  const full = found === 0 ? BAR_WIDTH : Math.round(((done + dead) / found) * BAR_WIDTH)
  return `[${'#'.repeat(full)}${'.'.repeat(BAR_WIDTH - full)}] ${line(standing)}`
}
