import assert from 'node:assert/strict'
import { bytes, type Codec, json } from '../../codec.js'
import { LimitError, QueueFullError, SettingsConflictError } from '../../errors.js'
import type { QueueOptions } from '../../queue.js'
import { type Concern, scenario } from './kit.js'
import { assertDepth, nextNow, payloads } from './steps.js'
import { all, pass, range, within } from './wait.js'

type Shared = Pick<QueueOptions<string>, 'codec' | 'maxDeliveries' | 'ageing' | 'limits' | 'retention'>

/** Processes of one queue agree on its settings, or refuse loudly. */
export const settings: Concern = {
  name: 'shared settings',
  scenarios: [
    ...conflicts().map(([field, stored, wanted]) =>
      scenario('N88', `a process that disagrees on ${field} is refused, with both values named`, async (bench) => {
        const queue = bench.queue(stored)
        await queue.enqueue('a')
        const peer = await bench.peer(queue, wanted)
        const attempts: Record<string, () => Promise<unknown>> = {
          enqueue: () => peer.enqueue('b'),
          tryReceive: () => peer.tryReceive(),
          receive: () => peer.receive({ timeoutMs: 5_000 }),
          stats: () => peer.stats(),
          source: () => all(peer.source()),
          purge: () => peer.purge(),
        }
        for (const [name, attempt] of Object.entries(attempts)) {
          await assert.rejects(within(2_000, name, attempt()), (error) => isConflict(error, field), name)
        }
        await assertDepth(queue, { ready: 1, enqueuedTotal: 1, claimed: 0, purgedTotal: 0 })
        assert.deepEqual(await payloads(queue), ['a'])
      }),
    ),

    scenario(
      'N88',
      'a process that does not know the codec of a queue refuses it, and reads nothing',
      async (bench) => {
        const shout: Codec<string> = { ...json<string>(), name: 'shout-1', encode: (value) => Buffer.from(`${value}!`) }
        const queue = bench.queue({ codec: shout })
        await queue.enqueue('a')
        const peer = await bench.peer(queue)
        await assert.rejects(peer.enqueue('b'), SettingsConflictError)
        await assert.rejects(within(2_000, 'it is refused', peer.tryReceive()), SettingsConflictError)
        await assertDepth(queue, { ready: 1, claimed: 0, dead: 0, enqueuedTotal: 1 })
      },
    ),

    scenario('N88', 'a codec of the same name is the same codec', async (bench) => {
      const queue = bench.queue({ codec: json<string>() })
      await queue.enqueue('a')
      const peer = await bench.peer(queue, { codec: { ...json<string>() } })
      assert.equal((await nextNow(peer)).payload, 'a')
    }),

    scenario('X19', 'a process that leaves the settings out takes those that are stored', async (bench) => {
      const queue = bench.queue<Uint8Array>({
        codec: bytes(),
        maxDeliveries: 2,
        limits: { maxLength: 2, maxPayloadBytes: 10 },
      })
      await queue.enqueue(Uint8Array.of(1))
      const peer = await bench.peer(queue)
      await assert.rejects(peer.enqueue(new Uint8Array(11)), LimitError)
      await peer.enqueue(Uint8Array.of(2))
      await assert.rejects(peer.enqueue(Uint8Array.of(3)), QueueFullError)
      const first = await nextNow(peer)
      assert.deepEqual([...first.payload], [1])
      await first.requeue()
      await (await nextNow(peer)).requeue()
      await assertDepth(peer, { dead: 1, ready: 1 })
    }),

    scenario('X19', 'a process that asks for the stored settings, all or some, is welcome', async (bench) => {
      const shared: Shared = {
        codec: json<string>(),
        maxDeliveries: 7,
        ageing: { stepMs: 100, cap: 9 },
        limits: { maxLength: 100, maxBytes: 10_000, maxPayloadBytes: 500, whenFull: 'dropOldest' },
        retention: { outcomesMs: 5_000, maxOutcomes: 50 },
      }
      const queue = bench.queue(shared)
      await queue.enqueue('a')
      const others: Partial<Shared>[] = [
        shared,
        { limits: { maxLength: 100 } },
        { limits: { whenFull: 'dropOldest' } },
        { retention: { maxOutcomes: 50 } },
        { maxDeliveries: 7 },
        {},
      ]
      for (const other of others) await assertDepth(await bench.peer(queue, other), { ready: 1 })
    }),

    scenario(
      'X19',
      'of many that make a queue at once one decides, and all others agree or are refused',
      async (bench) => {
        const queue = bench.queue()
        const peers = await Promise.all(range(12).map((n) => bench.peer(queue, { maxDeliveries: 1 + (n % 4) })))
        const results = await Promise.allSettled(peers.map((peer) => peer.stats()))
        const agreed = new Set(range(12).flatMap((n) => (results[n]?.status === 'fulfilled' ? [1 + (n % 4)] : [])))
        assert.equal(agreed.size, 1, `agreed on ${[...agreed]}`)
        const refused = results.filter((result) => result.status === 'rejected')
        assert.equal(refused.length, 9)
        assert.ok(refused.every(({ reason }) => reason instanceof SettingsConflictError))
      },
    ),

    scenario('X20', 'a changed setting holds for all, from now on', async (bench) => {
      const queue = bench.queue({ limits: { maxLength: 1 } })
      const peer = await bench.peer(queue)
      await queue.enqueue('a')
      await assert.rejects(peer.enqueue('b'), QueueFullError)
      await queue.configure({ limits: { maxLength: 2 } })
      await peer.enqueue('b')
      await assert.rejects(peer.enqueue('c'), QueueFullError)
      const later = await bench.peer(queue, { limits: { maxLength: 2 } })
      await assertDepth(later, { ready: 2 })
      const stale = await bench.peer(queue, { limits: { maxLength: 1 } })
      await assert.rejects(stale.stats(), (error) => isConflict(error, 'limits.maxLength'))
    }),

    scenario('X20', 'a change of one limit leaves the others as they are', async (bench) => {
      const queue = bench.queue({ limits: { maxLength: 5, maxBytes: 1_000, whenFull: 'dropOldest' } })
      const peer = await bench.peer(queue)
      await peer.size()
      await queue.configure({ limits: { maxBytes: 2_000 }, retention: { maxOutcomes: 3 } })
      // Who opened it before has not heard of that.
      await peer.configure({ limits: { maxLength: 6 } })
      await queue.configure({ limits: { whenFull: 'reject' } })
      const limits = { maxLength: 6, maxBytes: 2_000, whenFull: 'reject' } as const
      await assertDepth(await bench.peer(queue, { limits, retention: { maxOutcomes: 3 } }), { ready: 0 })
    }),

    scenario('X20', 'a lower maxDeliveries holds for what is queued already', async (bench) => {
      const queue = bench.queue({ maxDeliveries: 5 })
      await queue.enqueue('a')
      await (await nextNow(queue)).requeue()
      await queue.configure({ maxDeliveries: 2 })
      await (await nextNow(queue)).requeue()
      await assertDepth(queue, { dead: 1, ready: 0 })
    }),

    scenario('X20', 'ageing can be turned on, changed and off for what is queued already', async (bench) => {
      const queue = bench.queue()
      const fill = async () => {
        await queue.enqueue('low', { priority: 2 })
        await pass(150)
        await queue.enqueue('high', { priority: 0 })
      }
      await fill()
      await queue.configure({ ageing: { stepMs: 20 } })
      assert.deepEqual(await payloads(queue), ['low', 'high'])
      await fill()
      await queue.configure({ ageing: null })
      assert.deepEqual(await payloads(queue), ['high', 'low'])
      await fill()
      await queue.configure({ ageing: { stepMs: 60_000 } })
      assert.deepEqual(await payloads(queue), ['high', 'low'])
    }),

    scenario(
      'X20',
      'whoever changes the codec writes with the new one, and what it cannot read is a dead letter',
      async (bench) => {
        const queue = bench.queue<unknown>({ codec: json<unknown>() })
        await queue.enqueue('old')
        await queue.configure({ codec: bytes() as unknown as Codec<unknown> })
        await queue.enqueue(Uint8Array.of(1, 2))
        const [old, fresh] = await payloads(queue)
        assert.equal(Buffer.from(old as Uint8Array).toString(), '"old"')
        assert.deepEqual([...(fresh as Uint8Array)], [1, 2])
      },
    ),
  ],
}

function conflicts(): [field: string, stored: Partial<Shared>, wanted: Partial<Shared>][] {
  return [
    ['codec', {}, { codec: { ...json<string>(), name: 'json-2' } }],
    ['maxDeliveries', { maxDeliveries: 3 }, { maxDeliveries: 4 }],
    ['ageing.stepMs', { ageing: { stepMs: 100 } }, { ageing: { stepMs: 200 } }],
    ['ageing.cap', { ageing: { stepMs: 100, cap: 9 } }, { ageing: { stepMs: 100, cap: 8 } }],
    ['limits.maxLength', { limits: { maxLength: 10 } }, { limits: { maxLength: 11 } }],
    ['limits.maxBytes', { limits: { maxLength: 10 } }, { limits: { maxBytes: 11_000 } }],
    ['limits.maxPayloadBytes', { limits: { maxLength: 10 } }, { limits: { maxPayloadBytes: 1_000 } }],
    ['limits.whenFull', { limits: { maxLength: 10 } }, { limits: { whenFull: 'dropOldest' } }],
    ['retention.outcomesMs', { retention: { outcomesMs: 2_000 } }, { retention: { outcomesMs: 1_000 } }],
    ['retention.maxOutcomes', { retention: { maxOutcomes: 5 } }, { retention: { maxOutcomes: 6 } }],
  ]
}

function isConflict(error: unknown, field: string): boolean {
  assert.ok(error instanceof SettingsConflictError, `${error}`)
  assert.equal(error.code, 'ERR_MILLRACE_SETTINGS_CONFLICT')
  assert.equal(error.field, field)
  assert.notEqual(error.value, error.stored)
  return true
}
