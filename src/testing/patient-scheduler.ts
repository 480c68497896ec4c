/**
 * A scheduler of virtual time that gives promises their turn between its frames.
 */
import { dateTimestampProvider } from 'rxjs/internal/scheduler/dateTimestampProvider'
import { immediateProvider } from 'rxjs/internal/scheduler/immediateProvider'
import { intervalProvider } from 'rxjs/internal/scheduler/intervalProvider'
import { performanceTimestampProvider } from 'rxjs/internal/scheduler/performanceTimestampProvider'
import { timeoutProvider } from 'rxjs/internal/scheduler/timeoutProvider'
import { TestScheduler } from 'rxjs/testing'
import { assertFrames } from './frames.js'

type RunHelpers = Parameters<Parameters<TestScheduler['run']>[0]>[0]

/** Turns of the event loop after each frame: enough for chains of promises that lead to each other. */
const TURNS = 4
/** How long a test may wait for real time to bring something. */
const PATIENCE_MS = 1_000

/** Taken before a test runner can put a fake in its place. */
const nextTurn = globalThis.setImmediate

let entered = false

export class PatientScheduler extends TestScheduler {
  private readonly expectations: [actual: unknown, expected: unknown][]
  private readonly waiting: (() => void)[] = []

  constructor() {
    const expectations: [actual: unknown, expected: unknown][] = []
    // Told of each expectation before all its frames have come: the lists are compared in the end.
    super((actual, expected) => {
      expectations.push([actual, expected])
    })
    this.expectations = expectations
    // The run mode of RxJS is bound to a synchronous run. This is the same, for as long as the test takes.
    this['runMode'] = true
  }

  /** Gives virtual time to all of RxJS, until the returned function is called. */
  enter(): () => void {
    if (entered) throw new Error('asyncMarbles() tests cannot run side by side')
    entered = true
    const { frameTimeFactor } = TestScheduler
    TestScheduler.frameTimeFactor = 1
    const { immediate, interval, timeout } = this['createDelegates']()
    immediateProvider.delegate = immediate
    intervalProvider.delegate = interval
    timeoutProvider.delegate = timeout
    dateTimestampProvider.delegate = this
    performanceTimestampProvider.delegate = this
    return () => {
      entered = false
      TestScheduler.frameTimeFactor = frameTimeFactor
      for (const provider of [immediateProvider, intervalProvider, timeoutProvider]) provider.delegate = undefined
      for (const provider of [dateTimestampProvider, performanceTimestampProvider]) provider.delegate = undefined
    }
  }

  helpers(): RunHelpers {
    return {
      cold: this.createColdObservable.bind(this) as RunHelpers['cold'],
      hot: this.createHotObservable.bind(this) as RunHelpers['hot'],
      time: this.createTime.bind(this),
      expectObservable: this.expectObservable.bind(this) as RunHelpers['expectObservable'],
      expectSubscriptions: this.expectSubscriptions.bind(this),
      flush: () => {},
      animate: this['createAnimator']().animate,
    }
  }

  /** Fulfils when nothing is planned any more. */
  idle(): Promise<void> {
    return new Promise((resolve) => this.waiting.push(resolve))
  }

  /** Frame by frame, with turns of the event loop in between, until nothing is planned and the test has ended. */
  async play(maxFrames: number, test: Promise<void>): Promise<void> {
    let ended = false
    const end = () => {
      ended = true
    }
    test.then(end, end)
    let idleAt = performance.now()
    for (;;) {
      this.playFrame(this.frame)
      await turns()
      const next = Math.min(...this.actions.map(({ delay }) => delay), Number.POSITIVE_INFINITY)
      if (next <= maxFrames) {
        idleAt = performance.now()
        this.playFrame(next)
      } else if (ended) break
      else if (this.waiting.length > 0) for (const resolve of this.waiting.splice(0)) resolve()
      else if (performance.now() - idleAt > PATIENCE_MS)
        throw new Error(`the test waits for something that virtual time does not bring; it is frame ${this.frame}`)
    }
    await test
    for (const [actual, expected] of this.expectations) assertFrames(actual, expected)
  }

  private playFrame(frame: number): void {
    this.maxFrames = frame
    this.flush()
  }
}

async function turns(): Promise<void> {
  for (let turn = 0; turn < TURNS; turn += 1) await new Promise((resolve) => nextTurn(resolve))
}
