import assert from 'node:assert/strict'
import { mergeMap } from '../../operators/merge-map.js'
import { pipe } from '../../pipe.js'
import { drain } from '../../sinks/drain.js'
import { run } from '../../sinks/run.js'
import type { QueueSource } from '../../source.js'
import { type Concern, scenario } from './kit.js'
import { assertDepth, nextNow, stopwatch, throughout } from './steps.js'
import { pass, range, soon, until, within } from './wait.js'

/** A source with an end completes when that has come, and not before. */
export const endings: Concern = {
  name: 'sources with an end',
  scenarios: [
    ...(['empty', 'idle'] as const).map((end) =>
      scenario('X31', `a source until '${end}' ends at once on a queue with nothing in it`, async (bench) => {
        assert.deepEqual(await within(1_000, 'it ends', ran(bench.queue().source({ until: end })).done), [])
      }),
    ),

    ...(['empty', 'idle'] as const).map((end) =>
      scenario('X31', `a source until '${end}' delivers all there is, and then ends`, async (bench) => {
        const queue = bench.queue()
        await queue.enqueueAll(range(25).map((n) => ({ payload: String(n) })))
        assert.deepEqual(await soon('it ends', ran(queue.source({ until: end })).done), range(25).map(String))
        await assertDepth(queue, { ready: 0, claimed: 0, ackedTotal: 25 })
      }),
    ),

    scenario('X31', "until 'empty' waits for its own work, which may add to the queue", async (bench) => {
      const queue = bench.queue()
      await queue.enqueue('3')
      const seen: string[] = []
      const handler = async ({ payload }: { readonly payload: string }) => {
        seen.push(payload)
        await pass(20)
        if (payload !== '0') await queue.enqueue(String(Number(payload) - 1))
      }
      await soon('it ends', run(pipe(queue.source({ until: 'empty' }), mergeMap(handler, 4))))
      assert.deepEqual(seen, ['3', '2', '1', '0'])
    }),

    scenario('X31', "until 'empty' waits neither for what is delayed nor for what others hold", async (bench) => {
      const queue = bench.queue()
      const peer = await bench.peer(queue)
      await queue.enqueueAll([{ payload: 'held' }, { payload: 'mine' }, { payload: 'later', delayMs: 60_000 }])
      const held = await nextNow(peer)
      assert.deepEqual(await within(2_000, 'it ends', ran(queue.source({ until: 'empty' })).done), ['mine'])
      assert.equal(await held.ack(), 'settled')
      await assertDepth(queue, { delayed: 1, claimed: 0 })
    }),

    scenario('X31', "until 'idle' waits for what is delayed", async (bench) => {
      const queue = bench.queue()
      const clock = stopwatch()
      await queue.enqueueAll([{ payload: 'now' }, { payload: 'later', delayMs: 150 }])
      assert.deepEqual(await soon('it ends', ran(queue.source({ until: 'idle' })).done), ['now', 'later'])
      assert.ok(clock() >= 145, `it ended after ${clock()} ms`)
    }),

    scenario('X31', "until 'idle' waits for what others hold, and delivers what they give back", async (bench) => {
      const queue = bench.queue()
      const peer = await bench.peer(queue)
      await queue.enqueueAll([{ payload: 'given back' }, { payload: 'acked' }])
      const [back, acked] = [await nextNow(peer), await nextNow(peer)]
      const running = ran(queue.source({ until: 'idle' }))
      await throughout(60, () => !running.ended, 'it waits')
      await back.release()
      await until('it is delivered', () => running.seen.length === 1)
      await throughout(60, () => !running.ended, 'it still waits')
      await acked.ack()
      // Nothing tells of an ack elsewhere: it is found by the slow poll at the latest.
      assert.deepEqual(await within(8_000, 'it ends', running.done), ['given back'])
    }),

    scenario('X31', "until 'idle' outlasts a failure that comes back later", async (bench) => {
      const queue = bench.queue()
      await queue.enqueue('a')
      const attempts: number[] = []
      const source = queue.source({ until: 'idle' })
      for await (const delivery of source) {
        attempts.push(delivery.attempt)
        if (delivery.attempt < 3) await delivery.requeue({ delayMs: 40 })
        else await delivery.ack()
      }
      assert.deepEqual(attempts, [1, 2, 3])
    }),

    scenario('X31', 'an RxJS subscriber is told the end when its last delivery is settled', async (bench) => {
      const queue = bench.queue()
      await queue.enqueueAll([{ payload: 'a' }, { payload: 'b' }])
      let completed = false
      const held: { ack(): Promise<unknown> }[] = []
      queue.source({ until: 'empty', credit: 5 }).subscribe({
        next: (delivery) => held.push(delivery),
        complete: () => {
          completed = true
        },
      })
      await until('both come', () => held.length === 2)
      await throughout(40, () => !completed, 'it waits')
      for (const delivery of held) await delivery.ack()
      await until('it ends', () => completed)
    }),

    scenario('X31', 'a drain ends a flow that would not end by itself', async (bench) => {
      const queue = bench.queue()
      await queue.enqueueAll(range(12).map((n) => ({ payload: String(n) })))
      const summary = await soon(
        'it ends',
        drain(
          pipe(
            queue.source(),
            mergeMap(() => pass(2), 3),
          ),
        ),
      )
      assert.deepEqual([summary.acked, summary.lost, summary.abandoned], [12, 0, 0])
    }),
  ],
}

/** Consumes and acks one after the other. */
function ran(source: QueueSource<string>) {
  const seen: string[] = []
  const result = { seen, ended: false, done: Promise.resolve(seen) }
  result.done = (async () => {
    for await (const delivery of source) {
      seen.push(delivery.payload)
      await delivery.ack()
    }
    result.ended = true
    return seen
  })()
  return result
}
