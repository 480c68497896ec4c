/**
 * Marble tests whose handlers are promises.
 */
import { TestScheduler } from 'rxjs/testing'
import { assertFrames } from './frames.js'
import { helpersOf, type MarbleHelpers, type MarbleOptions } from './marbles.js'

const MAX_FRAMES = 100_000

/** Turns of the event loop after each frame: enough for chains of promises that lead to each other. */
const TURNS = 4

/**
 * Runs a marble test in which native promises make progress: after every frame the event loop turns a few times.
 * What a handler awaits must come from the scheduler or from promises that need no real time to pass.
 *
 * RxJS operators that take time need the scheduler given to them here: `delay(2, scheduler)`.
 *
 * @example
 * ```ts
 * await asyncMarbles(({ testQueue, expectObservable }) => {
 *   const queue = testQueue('-a-b|')
 *   expectObservable(pipe(queue.source(), mergeMap(async (d) => d.payload, 1))).toBe('-a-(b|)')
 * })
 * ```
 */
export async function asyncMarbles(
  test: (helpers: MarbleHelpers) => void,
  { maxFrames = MAX_FRAMES }: MarbleOptions = {},
): Promise<void> {
  const expectations: [actual: unknown, expected: unknown][] = []
  const scheduler = new PatientScheduler((actual, expected) => {
    expectations.push([actual, expected])
  })
  scheduler.run((helpers) => test(helpersOf(scheduler, { ...helpers })))
  await scheduler.play(maxFrames)
  for (const [actual, expected] of expectations) assertFrames(actual, expected)
}

class PatientScheduler extends TestScheduler {
  private playing = false

  /** Not before {@link play}: `run` would flush all frames in one go. */
  override flush(): void {
    if (this.playing) super.flush()
  }

  /** Frame by frame, with turns of the event loop in between. */
  async play(maxFrames: number): Promise<void> {
    this.playing = true
    this.maxFrames = this.frame
    this.flush()
    await turns()
    for (let next = this.nextFrame(); next <= maxFrames; next = this.nextFrame()) {
      this.maxFrames = next
      this.flush()
      await turns()
    }
  }

  private nextFrame(): number {
    return Math.min(...this.actions.map(({ delay }) => delay), Number.POSITIVE_INFINITY)
  }
}

async function turns(): Promise<void> {
  for (let turn = 0; turn < TURNS; turn += 1) await new Promise((resolve) => setImmediate(resolve))
}
