import assert from 'node:assert/strict'
import type { Delivery } from '../../delivery.js'
import type { SettleCommand } from '../../driver.js'
import type { Queue } from '../../queue.js'
import { type Bench, type Concern, scenario } from './kit.js'
import { assertDepth, nextNow } from './steps.js'
import { all, range, until } from './wait.js'

/** Every way back is counted, and no message goes round for ever; only the live claim settles. */
export const handOvers: Concern = {
  name: 'hand-overs and tokens',
  scenarios: [
    ...Object.entries(waysBack()).map(([name, back]) =>
      scenario('X32', `a message that comes back ${name} is dead after three times maxDeliveries`, async (bench) => {
        const queue = bench.queue({ maxDeliveries: 2 })
        await queue.enqueue('a', { id: 'a' })
        const seen: [number, number][] = []
        for (let delivery = await queue.tryReceive(); delivery; delivery = await queue.tryReceive()) {
          seen.push([delivery.attempt, delivery.deliveryCount])
          assert.ok(seen.length <= 6, 'it goes round for ever')
          await back(delivery)
          await until('no delay is left', async () => (await queue.stats()).delayed === 0)
        }
        assert.deepEqual(
          seen,
          range(6).map((n) => [1, n + 1]),
        )
        await assertDepth(queue, { ready: 0, delayed: 0, claimed: 0, dead: 1 })
        const [letter] = await all(queue.deadLetters)
        assert.deepEqual([letter?.attempts, letter?.deliveryCount], [1, 6])
        assert.match(letter?.reason ?? '', /6 times/)
      }),
    ),

    scenario('X32', 'attempts end a message before its hand-overs do', async (bench) => {
      const queue = bench.queue({ maxDeliveries: 2 })
      await queue.enqueue('a')
      await (await nextNow(queue)).release()
      await (await nextNow(queue)).requeue()
      await (await nextNow(queue)).release()
      const last = await nextNow(queue)
      assert.deepEqual([last.attempt, last.deliveryCount], [2, 4])
      await last.requeue()
      await assertDepth(queue, { ready: 0, dead: 1 })
    }),

    scenario('X32', 'a claim that nobody saw does not count as a hand-over', async (bench) => {
      const queue = bench.queue({ maxDeliveries: 1 })
      await queue.enqueue('a')
      for (const _ of range(8)) {
        const fault = bench.backend.inject({ verb: 'claim', kind: 'hold-reply' })
        const controller = new AbortController()
        const wait = assert.rejects(queue.receive({ signal: controller.signal }), { name: 'AbortError' })
        await fault.reached
        controller.abort()
        fault.release()
        await wait
      }
      const delivery = await nextNow(queue)
      assert.deepEqual([delivery.attempt, delivery.deliveryCount], [1, 1])
    }),

    scenario('X32', 'the fence rises with every claim of the queue', async (bench) => {
      const queue = bench.queue()
      const peer = await bench.peer(queue)
      await queue.enqueueAll(range(4).map((n) => ({ payload: String(n) })))
      const fences: number[] = []
      for (const n of range(12)) {
        const delivery = await nextNow(n % 2 ? queue : peer)
        fences.push(delivery.fence)
        if (n % 3) await delivery.release()
        else await delivery.requeue({ countAttempt: false })
      }
      fences.reduce((last, fence) => {
        assert.ok(fence > last, `${fence} after ${last}`)
        return fence
      })
    }),

    ...settlements().map(([name, settle]) =>
      scenario('M14', `${name} is answered by value: once settled, then already settled`, async (bench) => {
        const { queue, delivery } = await claimed(bench)
        const target = bench.queue()
        assert.equal(await settle(delivery, target), 'settled')
        for (const [, again] of settlements()) assert.equal(await again(delivery, target), 'already-settled')
        const { ready, claimed: held, dead, ackedTotal, forwardedTotal } = await queue.stats()
        assert.deepEqual([ready + dead + ackedTotal + forwardedTotal, held], [1, 0])
      }),
    ),

    ...settlements().map(([name, settle]) =>
      scenario('M14', `${name} under a claim that is gone is stale, and leaves the new claim alone`, async (bench) => {
        const { queue, delivery } = await claimed(bench)
        const target = bench.queue()
        await queue.purge({ state: 'claimed' })
        await queue.enqueue('new', { id: 'a' })
        const fresh = await nextNow(queue)
        assert.equal(await settle(delivery, target), 'stale')
        assert.equal(await fresh.ack(), 'settled')
        await assertDepth(queue, { ready: 0, dead: 0, claimed: 0, ackedTotal: 1, purgedTotal: 1 })
        await assertDepth(target, { enqueuedTotal: 0 })
      }),
    ),

    scenario('M14', 'a token that never was, or is of another message, settles nothing', async (bench) => {
      const queue = bench.queue()
      await queue.enqueueAll(['a', 'b'].map((id) => ({ id, payload: id })))
      const [a, b] = [await nextNow(queue), await nextNow(queue)]
      const driver = bench.backend.open(queue.name, { close: () => Promise.resolve() })
      const tokens = ['', ' ', '0', '-1', '1e3', 'NaN', '__proto__', '🐟', '%', '{a}', '\u0000', 'x'.repeat(2_000)]
      const commands = tokens.flatMap((token): SettleCommand[] => [
        { id: 'a', token, kind: 'ack' },
        { id: 'a', token, kind: 'requeue', delayMs: 0, countAttempt: true },
        { id: 'b', token, kind: 'release', delivered: true },
        { id: 'nobody', token, kind: 'dead-letter', reason: 'no' },
      ])
      const results = await driver.settle(commands, { session: `forged ${queue.name}`, seq: 1, floor: 1 })
      assert.deepEqual(new Set(results.map(({ state }) => state)), new Set(['stale']))
      await driver.close()
      assert.equal(await a.ack(), 'settled')
      assert.equal(await b.ack(), 'settled')
    }),
  ],
}

/** The ways back that count no attempt. */
function waysBack(): Record<string, (delivery: Delivery<string>) => Promise<unknown>> {
  return {
    'by release': (delivery) => delivery.release(),
    'by a requeue that counts no attempt': (delivery) => delivery.requeue({ countAttempt: false }),
    'by a delayed requeue that counts no attempt': (delivery) => delivery.requeue({ countAttempt: false, delayMs: 1 }),
  }
}

type Settle = (delivery: Delivery<string>, target: Queue<string>) => Promise<unknown>

function settlements(): [name: string, settle: Settle][] {
  return [
    ['an ack', (delivery) => delivery.ack()],
    ['a requeue', (delivery) => delivery.requeue()],
    ['a dead-letter', (delivery) => delivery.deadLetter('no')],
    ['a release', (delivery) => delivery.release()],
    ['a forward', (delivery, target) => delivery.forward(target, 'moved')],
  ]
}

async function claimed(bench: Bench) {
  const queue = bench.queue()
  await queue.enqueue('old', { id: 'a' })
  return { queue, delivery: await nextNow(queue) }
}
