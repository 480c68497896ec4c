import assert from 'node:assert/strict'
import type { Delivery } from '../../delivery.js'
import { LeaseLostError } from '../../errors.js'
import { process as settling } from '../../operators/process.js'
import { pipe } from '../../pipe.js'
import { collect } from '../../sinks/collect.js'
import type { FaultyBackend } from '../faulty-backend.js'
import { type Bench, type Concern, scenario } from './kit.js'
import { aborted, assertDepth, next, nextNow, recorded, stopwatch, throughout } from './steps.js'
import { pass, shortLeaseMs, soon, until, within } from './wait.js'

/** Cut off for less than a lease nothing is lost; for more, everything is, and everybody knows it. */
export const networkPartitions: Concern = {
  name: 'partitions of the network',
  scenarios: [
    scenario('N80', 'a partition shorter than the lease loses no claim and no settlement', async (bench) => {
      await Promise.all([keepsClaim(bench, 'drop-request'), keepsClaim(bench, 'drop-reply'), keepsSettlement(bench)])
    }),

    scenario(
      'N80',
      'a waiter outlives a short partition, whether its claims or their replies were lost',
      async (bench) => {
        const [parked, starting] = [bench.queue({ leaseMs: 30_000 }), bench.queue({ leaseMs: 30_000 })]
        const [parkedPeer, startingPeer] = [await bench.peer(parked), await bench.peer(starting)]
        await starting.enqueueAll([{ payload: 'a' }, { payload: 'b' }])
        const first = next(parked)
        await pass(20)
        const request = bench.backend.inject({ verb: 'claim', kind: 'drop-request' })
        const reply = bench.backend.inject({ verb: 'claim', kind: 'drop-reply', nth: 2 })
        await parkedPeer.enqueueAll([{ payload: 'a' }, { payload: 'b' }])
        await soon('the parked one claims', request.reached)
        const second = next(starting)
        await soon('the other claims', reply.reached)
        for (const delivery of await soon('both waits end', Promise.all([first, second])))
          assert.deepEqual([delivery.payload, delivery.attempt, delivery.deliveryCount], ['a', 1, 1])
        for (const peer of [parkedPeer, startingPeer]) await assertDepth(peer, { ready: 1, claimed: 1 })
      },
    ),

    ...(['drop-request', 'drop-reply'] as const).map((kind) =>
      scenario(
        'N81',
        `a partition longer than the lease loses the claim, and its holder knows first (${kind})`,
        async (bench) => {
          const leaseMs = shortLeaseMs(bench.features, 200)
          const queue = bench.queue({ leaseMs })
          const peer = await bench.peer(queue)
          await queue.enqueue('a')
          const source = queue.source()
          const events = recorded(source)
          const lost = noticed()
          const { value: first } = await soon('a delivery', source[Symbol.asyncIterator]().next())
          assert.ok(first)
          lost.watch(first.signal)
          const clock = stopwatch()
          const heal = cut(bench.backend, kind, kind === 'drop-reply' ? 'settle' : '*')
          const failing = kind === 'drop-reply' ? cut(bench.backend, 'drop-request', 'renew') : () => {}
          const second = await soon('the message goes elsewhere', next(peer))
          assert.ok(clock() >= leaseMs * 0.6, `it went after ${clock()} ms of a lease of ${leaseMs}`)
          assert.deepEqual([second.payload, second.attempt, second.deliveryCount], ['a', 2, 2])
          assert.ok(second.fence > first.fence, 'the fence did not rise')
          assert.ok(first.signal.aborted, 'its first holder does not know')
          assert.ok(first.signal.reason instanceof LeaseLostError)
          assert.equal(first.settled, true)
          await until('the handler is told', () => lost.told)
          await until('the loss is told', () => events.some(({ type }) => /lease-(expired|lost)/.test(type)))
          heal()
          failing()
          assert.equal(await soon('the late ack is answered', first.ack()), 'stale')
          assert.equal(await second.ack(), 'settled')
          await assertDepth(peer, { ready: 0, claimed: 0, dead: 0, ackedTotal: 1 })
          void source.stop({ graceMs: 0 })
        },
      ),
    ),

    scenario('N81', 'a settlement under a lost lease asks nobody, and answers stale', async (bench) => {
      const { delivery, peer, leaseMs } = await claimed(bench, 150)
      cut(bench.backend, 'drop-request')
      await pass(leaseMs * 1.2)
      const calls = bench.backend.calls.length
      assert.equal(await within(500, 'it is answered', delivery.ack()), 'stale')
      assert.equal(await delivery.requeue(), 'stale')
      assert.ok(!bench.backend.calls.slice(calls).includes('settle'), 'a settlement was sent')
      assert.equal((await next(peer)).attempt, 2)
    }),

    scenario('N81', 'a pipeline reports what it lost, and takes on what comes after the partition', async (bench) => {
      const leaseMs = shortLeaseMs(bench.features, 250)
      const queue = bench.queue({ leaseMs })
      const peer = await bench.peer(queue)
      await queue.enqueue('a')
      const controller = new AbortController()
      const outcomes: string[] = []
      const handler = async ({ payload, signal }: Delivery<string>) => {
        if (payload === 'a') await aborted(signal)
      }
      const flow = pipe(queue.source(), settling(handler, 1))
      const running = collect(flow, { signal: controller.signal, graceMs: 0 }).then((ends) => {
        outcomes.push(...ends.map(({ outcome, delivery }) => `${delivery.payload} ${outcome}`))
      })
      await until('it is claimed', async () => (await peer.stats()).claimed === 1)
      const heal = cut(bench.backend, 'drop-request', 'renew')
      const unreachable = bench.backend.inject({ verb: 'claim', kind: 'fail-request', times: Number.POSITIVE_INFINITY })
      const again = await next(peer)
      heal()
      unreachable.remove()
      await again.ack()
      await peer.enqueue('b')
      await until('the pipeline goes on', async () => (await peer.stats()).ackedTotal === 2)
      controller.abort()
      await soon('it ends', running)
      assert.deepEqual(outcomes, ['a lost', 'b acked'])
    }),
  ],
}

/** Each with a network of its own, so that they can be cut off side by side. */
async function keepsClaim(bench: Bench, kind: 'drop-request' | 'drop-reply'): Promise<void> {
  const backend = await bench.client()
  const { queue, peer, delivery, leaseMs } = await claimed(bench, 1_200, backend)
  const heal = cut(backend, kind)
  await pass(leaseMs * 0.4)
  heal()
  await throughout(leaseMs, async () => (await peer.tryReceive()) === undefined, 'nobody else gets it')
  assert.equal(delivery.signal.aborted, false)
  assert.equal(await delivery.ack(), 'settled')
  await assertDepth(queue, { ready: 0, claimed: 0, ackedTotal: 1 })
}

async function keepsSettlement(bench: Bench): Promise<void> {
  const backend = await bench.client()
  const { delivery, peer } = await claimed(bench, 10_000, backend)
  const heal = cut(backend, 'drop-reply')
  const settled = delivery.ack()
  await until('it is applied', async () => (await peer.stats()).ackedTotal === 1)
  heal()
  assert.equal(await within(5_000, 'it is confirmed', settled), 'settled')
  await assertDepth(peer, { ackedTotal: 1, claimed: 0 })
}

/** What is sent, or what is answered, gets nowhere until the returned function is called. */
function cut(
  backend: FaultyBackend,
  kind: 'drop-request' | 'drop-reply',
  verb: 'settle' | 'renew' | '*' = '*',
): () => void {
  const fault = backend.inject({ verb, kind, times: Number.POSITIVE_INFINITY })
  return () => fault.remove()
}

/** One message, claimed by a process that the network can be cut off from, and a process that it cannot. */
async function claimed(bench: Bench, lease: number, backend = bench.backend) {
  const leaseMs = shortLeaseMs(bench.features, lease)
  const queue = bench.queue({ leaseMs, backend })
  const peer = await bench.peer(queue)
  await queue.enqueue('a')
  return { queue, peer, leaseMs, delivery: await nextNow(queue) }
}

/** Whether the listeners of a signal have been called, which is more than that it says so when asked. */
function noticed() {
  let told = false
  return {
    watch: (signal: AbortSignal) =>
      signal.addEventListener('abort', () => {
        told = true
      }),
    get told() {
      return told
    },
  }
}
