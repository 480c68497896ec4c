/**
 * Leaving a stream that delivers: N14 to N16.
 */
import assert from 'node:assert/strict'
import { firstValueFrom, from, type Subscription, take, takeUntil, timer } from 'rxjs'
import type { Delivery } from '../../delivery.js'
import { mergeMap } from '../../operators/merge-map.js'
import { pipe } from '../../pipe.js'
import type { Queue } from '../../queue.js'
import { run } from '../../sinks/run.js'
import { gap, jitteryBackend } from './jitter.js'
import { type Bench, type Concern, scenario } from './kit.js'
import {
  assertConserved,
  callsOf,
  parked,
  pass,
  range,
  receive,
  seeded,
  soon,
  statsAre,
  stays,
  within,
} from './wait.js'

/** A consumer of at most a few messages, with the moment of its cancel in other hands. */
interface Taker {
  /** Fulfils when all it was ever given has been settled or given back. */
  readonly done: Promise<void>
  cancel(): void
}

type Show = (delivery: Delivery<number>) => Promise<void>

function receiver(queue: Queue<number>, show: Show): Taker {
  const controller = new AbortController()
  const done = queue.receive({ signal: controller.signal }).then(
    (delivery) => show(delivery as Delivery<number>),
    (error) => assert.equal(error.name, 'AbortError'),
  )
  return { done, cancel: () => controller.abort() }
}

function subscriber(queue: Queue<number>, show: Show): Taker {
  const source = queue.source({ credit: 2 })
  const shown: Promise<void>[] = []
  const subscription: Subscription = source.subscribe((delivery) => void shown.push(show(delivery)))
  let cancelled = () => {}
  const done = new Promise<void>((resolve) => {
    cancelled = resolve
  })
  const cancel = () => {
    subscription.unsubscribe()
    cancelled()
  }
  return {
    done: done
      .then(() => source.stop())
      .then(() => Promise.all(shown))
      .then(() => {}),
    cancel,
  }
}

function iterator(queue: Queue<number>, show: Show): Taker {
  const iteration = queue.source()[Symbol.asyncIterator]()
  const next = iteration.next().then((result) => (result.done ? undefined : show(result.value)))
  let cancelled = () => {}
  const done = new Promise<void>((resolve) => {
    cancelled = () => resolve(iteration.return?.().then(() => next))
  })
  return { done, cancel: cancelled }
}

/** What became of the messages of many interleavings. */
class Tally {
  enqueued = 0
  readonly acked = new Set<string>()
  /** How often each message was shown to somebody whose ack then came too late. */
  readonly returned = new Map<string, number>()

  constructor(private readonly settlesAlways: boolean) {}

  readonly show: Show = async (delivery) => {
    if (this.settlesAlways) assert.equal(delivery.attempt, 1)
    const settlement = await delivery.ack()
    if (settlement === 'settled') {
      assert.equal(this.acked.has(delivery.id), false, 'acked twice')
      this.acked.add(delivery.id)
      return
    }
    assert.equal(this.settlesAlways, false, `an ack answered ${settlement}`)
    this.returned.set(delivery.id, (this.returned.get(delivery.id) ?? 0) + 1)
  }
}

async function interleave(
  queue: Queue<number>,
  producer: Queue<number>,
  taker: (queue: Queue<number>, show: Show) => Taker,
  tally: Tally,
  random: () => number,
  patienceMs: number,
): Promise<void> {
  const produce = async () => {
    tally.enqueued += 1
    await producer.enqueue(tally.enqueued)
  }
  const early = random() < 0.5 ? produce() : undefined
  await gap(random)
  const { done, cancel } = taker(queue, tally.show)
  await gap(random)
  let late: Promise<void> | undefined
  if (random() < 0.5) {
    late = produce()
    if (random() < 0.5) await gap(random)
  }
  // A server takes longer than a few turns: some get what they asked for.
  if (random() < 0.2) await Promise.race([done, pass(patienceMs)])
  cancel()
  if (!late && random() < 0.3) late = produce()
  await Promise.all([early, done, late])
}

/** Every interleaving ends with each message acked, or ready again as if nobody had seen it. */
function interleavings(
  taker: (queue: Queue<number>, show: Show) => Taker,
  rounds: number,
  settlesAlways: boolean,
  network = false,
) {
  return async (bench: Bench): Promise<void> => {
    const seed = 20_261_130
    const random = seeded(seed)
    const backend = network ? jitteryBackend(bench.backend, random) : bench.backend
    const queue = bench.queue<number>({ maxDeliveries: 1_000, backend })
    const peer = await bench.peer(queue)
    const tally = new Tally(settlesAlways)
    // A store with leases of whole seconds agrees with others, and syncs to a disk, before it answers.
    const slow = network || bench.features.leaseStepMs > 1
    const patienceMs = slow ? 120 : 60
    for (let left = rounds; left > 0; left -= 100) {
      const batch = range(100).map((index) =>
        interleave(queue, index % 2 === 0 ? queue : peer, taker, tally, random, patienceMs),
      )
      await within(20_000, `a batch with ${left} rounds to go (seed ${seed})`, Promise.all(batch))
      const stats = await queue.stats()
      assertConserved(stats, `seed ${seed}`)
      assert.deepEqual(
        [stats.claimed, stats.ackedTotal, stats.ready],
        [0, tally.acked.size, tally.enqueued - tally.acked.size],
        `claimed, acked, ready with ${left} rounds to go (seed ${seed})`,
      )
    }
    assert.ok(tally.acked.size > rounds / 20 && tally.enqueued > rounds / 2, 'the interleavings are one-sided')
    await remainderIsUntouched(queue, tally)
  }
}

async function remainderIsUntouched(queue: Queue<number>, tally: Tally): Promise<void> {
  const attempts = new Map<string, number>()
  const note = ({ id, attempt }: Delivery<number>) => void attempts.set(id, attempt)
  await run(pipe(queue.source({ until: 'empty' }), mergeMap(note, 100)))
  for (const [id, attempt] of attempts) {
    assert.equal(tally.acked.has(id), false, 'both delivered and remaining')
    assert.equal(attempt, 1 + (tally.returned.get(id) ?? 0), 'an attempt that nobody made')
  }
  assert.equal(attempts.size + tally.acked.size, tally.enqueued)
}

async function breakAfterThree(bench: Bench): Promise<void> {
  const queue = bench.queue<number>()
  await queue.enqueueAll(range(6).map((payload) => ({ payload })))
  let seen = 0
  for await (const delivery of queue.source()) {
    assert.equal(await delivery.ack(), 'settled')
    seen += 1
    if (seen === 3) break
  }
  await statsAre(queue, { ready: 3, ackedTotal: 3 })
  for (const payload of [3, 4, 5]) {
    const delivery = await receive(queue)
    assert.deepEqual([delivery.payload, delivery.attempt, delivery.deliveryCount], [payload, 1, 1])
  }
}

/** The third was seen, so it goes back counted; and at once, in its old place. */
async function breakUnsettled(bench: Bench): Promise<void> {
  const queue = bench.queue<number>()
  await queue.enqueueAll(range(5).map((payload) => ({ payload })))
  let last: Delivery<number> | undefined
  for await (const delivery of queue.source()) {
    if (delivery.payload === 2) {
      last = delivery
      break
    }
    await delivery.ack()
  }
  await statsAre(queue, { ready: 3, ackedTotal: 2 })
  assert.equal(await last?.ack(), 'stale')
  const expected = [
    [2, 2, 2],
    [3, 1, 1],
    [4, 1, 1],
  ]
  for (const row of expected) {
    const delivery = await receive(queue)
    assert.deepEqual([delivery.payload, delivery.attempt, delivery.deliveryCount], row)
  }
}

async function throwInBody(bench: Bench): Promise<void> {
  const queue = bench.queue<number>()
  await queue.enqueueAll(range(2).map((payload) => ({ payload })))
  const failure = new Error('in the body')
  await assert.rejects(
    async () => {
      for await (const _delivery of queue.source()) throw failure
    },
    (error) => error === failure,
  )
  await statsAre(queue, { ready: 2 })
  assert.equal((await receive(queue)).attempt, 2)
  assert.equal((await receive(queue)).attempt, 1)
}

/** `return()` while the next claim is under way. */
async function returnInFlight(bench: Bench): Promise<void> {
  const queue = bench.queue<number>()
  await queue.enqueueAll(range(3).map((payload) => ({ payload })))
  const iterator = queue.source()[Symbol.asyncIterator]()
  const first = await iterator.next()
  await first.value?.ack()
  const fault = bench.backend.inject({ verb: 'claim', kind: 'hold-reply' })
  const second = iterator.next()
  await soon('the claim', fault.reached)
  const returned = iterator.return?.() as Promise<unknown>
  await stays(40, 'return() before the claim was given back', returned)
  fault.release()
  assert.deepEqual(await soon('return()', returned), { done: true, value: undefined })
  await statsAre(queue, { ready: 2, ackedTotal: 1 })
  assert.deepEqual(await second, { done: true, value: undefined })
  const delivery = await receive(queue)
  assert.deepEqual([delivery.payload, delivery.attempt, delivery.deliveryCount], [1, 1, 1])
}

async function returnBeforeNext(bench: Bench): Promise<void> {
  const queue = bench.queue<number>()
  const iterator = queue.source()[Symbol.asyncIterator]()
  assert.deepEqual(await iterator.return?.(), { done: true, value: undefined })
  assert.deepEqual(await iterator.next(), { done: true, value: undefined })
  assert.deepEqual(bench.backend.calls, [])
}

/** No consumer is left behind that would take what comes now. */
async function staysAvailable(bench: Bench, leave: (queue: Queue<string>) => Promise<void>): Promise<void> {
  const queue = bench.queue()
  const peer = await bench.peer(queue)
  await leave(queue)
  const claims = callsOf(bench.backend, 'claim')
  await peer.enqueueAll([{ payload: 'first' }, { payload: 'second' }])
  await pass(50)
  assert.equal(callsOf(bench.backend, 'claim'), claims, 'something claims after unsubscribe()')
  await statsAre(peer, { ready: 2 })
  for (const payload of ['first', 'second']) {
    const delivery = await receive(peer)
    assert.deepEqual([delivery.payload, delivery.attempt, delivery.deliveryCount], [payload, 1, 1])
  }
}

async function takeOne(bench: Bench): Promise<void> {
  const queue = bench.queue()
  const firstOfTwo = parked(bench.backend, () => ({ value: firstValueFrom(from(queue.source()).pipe(take(1))) }))
  const { value } = await firstOfTwo
  await queue.enqueueAll([{ payload: 'first' }, { payload: 'second' }])
  const delivery = await soon('the first', value)
  assert.equal(delivery.payload, 'first')
  assert.equal(await delivery.ack(), 'settled')
  await statsAre(queue, { ready: 1, ackedTotal: 1 })
  const second = await receive(queue)
  assert.deepEqual([second.payload, second.attempt, second.deliveryCount], ['second', 1, 1])
}

/** Consumers that leave. */
export const leaving: Concern = {
  name: 'leaving',
  scenarios: [
    scenario(
      'N14',
      '6 000 interleavings of receive, enqueue and abort lose nothing',
      interleavings(receiver, 6_000, true),
    ),
    scenario(
      'N14',
      '2 000 interleavings of subscribe, enqueue and unsubscribe lose nothing',
      interleavings(subscriber, 2_000, true),
    ),
    scenario(
      'N14',
      '2 000 interleavings of next(), enqueue and return() lose nothing',
      interleavings(iterator, 2_000, false),
    ),
    scenario(
      'N14',
      '2 000 interleavings of receive and abort over a slow network lose nothing',
      interleavings(receiver, 2_000, true, true),
    ),
    scenario(
      'N14',
      '1 000 interleavings of subscribe and unsubscribe over a slow network lose nothing',
      interleavings(subscriber, 1_000, true, true),
    ),
    scenario(
      'N14',
      '1 000 interleavings of next() and return() over a slow network lose nothing',
      interleavings(iterator, 1_000, false, true),
    ),
    scenario('N15', 'a loop left after three messages has claimed no fourth', breakAfterThree),
    scenario('N15', 'a message that was unsettled at the break is back at once, in its place, counted', breakUnsettled),
    scenario('N15', 'a throw in the body gives back what it was given, counted', throwInBody),
    scenario('N15', 'return() waits until the claim in flight is given back', returnInFlight),
    scenario('N15', 'return() before the first next() touches nothing', returnBeforeNext),
    scenario('N16', 'after unsubscribe() nothing takes what comes later', (bench) =>
      staysAvailable(bench, async (queue) => {
        const subscription = await parked(bench.backend, () => queue.source().subscribe())
        subscription.unsubscribe()
      }),
    ),
    scenario('N16', 'after unsubscribe() from from(source) nothing takes what comes later', (bench) =>
      staysAvailable(bench, async (queue) => {
        const subscription = await parked(bench.backend, () => from(queue.source()).subscribe())
        subscription.unsubscribe()
      }),
    ),
    scenario('N16', 'after takeUntil() nothing takes what comes later', (bench) =>
      staysAvailable(bench, async (queue) => {
        await new Promise<void>((complete) => {
          queue
            .source()
            .pipe(takeUntil(timer(30)))
            .subscribe({ complete })
        })
      }),
    ),
    scenario('N16', 'take(1) of RxJS takes one, and its delivery can still be acked', takeOne),
  ],
}
