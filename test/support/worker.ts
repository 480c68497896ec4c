/**
 * A worker in a process of its own, on any backend: it tells each id that it begins with, and goes on until it is told to
 * stop. It is asked to `handle`; to `hold`, and never end a handler; or to `exit` the process with the first.
 */
import { mergeMap, pipe, type Queue, type Released, run } from 'millrace'

export interface Told {
  readonly ready?: true
  readonly id?: string
  readonly attempt?: number
  readonly released?: Released
}

/** Ends when it is told to, by a message or by SIGTERM. */
export async function work(queue: Queue<string>, what: string): Promise<void> {
  const say = (told: Told) => process.send?.(told)
  const stop = new AbortController()
  process.once('message', () => stop.abort())
  process.once('SIGTERM', () => stop.abort())
  await queue.size()
  say({ ready: true })
  const released = await run(
    pipe(
      queue.source(),
      mergeMap(async ({ id, attempt }) => {
        say({ id, attempt })
        if (what === 'exit') process.exit(1)
        if (what === 'hold') await new Promise(() => {})
      }, 5),
    ),
    { signal: stop.signal },
  )
  say({ released })
  await queue.close()
  process.disconnect()
}
