import type { Delivery, Flow, QueueSource, Released, SourceOptions } from 'millrace'
import type { MarbleHelpers, TestQueue } from 'millrace/testing'
import type { Observable } from 'rxjs'
import { Eventual } from '../../src/eventual.js'

export const WAYS = ['signal', 'unsubscribe', 'stop', 'return'] as const
export type Way = (typeof WAYS)[number]

/** A pipeline that is consumed by the face that its way to be cancelled belongs to, and a log of what it did. */
export class Consumption {
  /** `<frame> <what>` of each value, of the end of the stream and of the cancel's. */
  readonly log: string[] = []
  readonly source: QueueSource<string>
  released: Released | undefined
  private readonly controller = new AbortController()
  private leave: () => void = () => {}

  constructor(
    private readonly helpers: MarbleHelpers,
    queue: TestQueue<string>,
    private readonly way: Way,
    build: (source: QueueSource<string>) => Observable<unknown>,
    options: SourceOptions = {},
  ) {
    this.source = queue.source({ signal: this.controller.signal, ...options })
    const flow = build(this.source)
    helpers.scheduler.schedule(() => this.start(flow))
  }

  get signal(): AbortSignal {
    return this.controller.signal
  }

  note(what: string): void {
    this.log.push(`${this.helpers.scheduler.frame} ${what}`)
  }

  /** Cancels in a frame, before what happens in it, unless that was planned before. */
  cancelAt(frame: number): this {
    this.helpers.scheduler.schedule(() => this.cancel(), frame)
    return this
  }

  cancel(): void {
    if (this.way === 'signal') this.controller.abort(new Error('enough'))
    else this.leave()
    void this.source.stop().then((released) => {
      this.released = released
      this.note('cancelled')
    })
  }

  private start(flow: Observable<unknown>): void {
    if (this.way === 'return') return this.iterate(flow as Flow<unknown>)
    const subscription = flow.subscribe({
      next: (value) => this.note(`out ${nameOf(value)}`),
      error: (error) => this.note(`error ${error.name}`),
      complete: () => this.note('complete'),
    })
    if (this.way === 'unsubscribe') this.leave = () => subscription.unsubscribe()
  }

  private iterate(flow: Flow<unknown>): void {
    const iterator = flow[Symbol.asyncIterator]()
    const step = () => {
      iterator.next().then(
        ({ done, value }) => {
          if (done) return this.note('done')
          this.note(`out ${nameOf(value)}`)
          step()
        },
        (error) => this.note(`error ${error.name}`),
      )
    }
    step()
    this.leave = () => void iterator.return?.()
  }
}

function nameOf(value: unknown): string {
  return typeof value === 'object' && value !== null && 'id' in value ? (value as Delivery<unknown>).id : String(value)
}

/** A promise of virtual time: it begins now, and fulfils, or rejects with `fails`, so many frames later. */
export function promised<T>({ scheduler }: MarbleHelpers, frames: number, value: T, fails?: unknown): Promise<T> {
  const result = new Eventual<T>()
  scheduler.schedule(() => {
    if (fails === undefined) result.resolve(value)
    else result.reject(fails)
  }, frames)
  return result
}

/** Claims with the next consumer of the queue: what it sees of each message, as `id attempt deliveryCount`. */
export function seenNext(helpers: MarbleHelpers, queue: TestQueue<string>, frame: number): string[] {
  const seen: string[] = []
  helpers.scheduler.schedule(() => {
    queue.source({ credit: 9 }).subscribe((d) => {
      seen.push(`${d.id} ${d.attempt} ${d.deliveryCount}`)
      void d.ack()
    })
  }, frame)
  return seen
}
