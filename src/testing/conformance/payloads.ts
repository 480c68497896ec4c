import assert from 'node:assert/strict'
import { bytes, type Codec, json } from '../../codec.js'
import { PayloadError, SchemaError, type SchemaIssue } from '../../errors.js'
import type { Queue, QueueOptions } from '../../queue.js'
import { type Bench, type Concern, scenario } from './kit.js'
import { assertDepth, drained, nextNow, payloads as payloadsOf, recorded } from './steps.js'
import { all, callsOf, pass, range, soon, until, within } from './wait.js'

/** What goes in comes out byte for byte, and what cannot come out stops nothing. */
export const payloads: Concern = {
  name: 'payloads',
  scenarios: [
    scenario(
      'N73',
      'a payload that does not decode is a dead letter with its bytes, and the stream lives',
      async (bench) => {
        const { queue, poison } = await poisoned(bench)
        await queue.enqueue('good')
        const source = queue.source()
        const events = recorded(source)
        for await (const delivery of source) {
          assert.equal(delivery.payload, 'good')
          await delivery.ack()
          break
        }
        const [letter] = await all(queue.deadLetters)
        assert.equal(letter?.payload, undefined)
        assert.deepEqual([...(letter?.bytes ?? [])], [...poison])
        assert.match(letter?.reason ?? '', /decode/i)
        assert.equal(events.filter(({ type }) => type === 'decode-failed').length, 1)
        await assertDepth(queue, { ready: 0, claimed: 0, dead: 1, ackedTotal: 1 })
      },
    ),

    scenario(
      'N73',
      'a queue of nothing but poison is empty to a receiver, who neither spins nor hangs',
      async (bench) => {
        const { queue } = await poisoned(bench, 5)
        assert.equal(await within(5_000, 'the wait ends', queue.receive({ timeoutMs: 100 })), undefined)
        await until('all are dead letters', async () => (await queue.stats()).dead === 5)
        const claims = callsOf(bench.backend, 'claim')
        assert.ok(claims <= 12, `${claims} claims for 5 messages`)
        assert.equal(await queue.tryReceive(), undefined)
        await assertDepth(queue, { ready: 0, claimed: 0, dead: 5 })
      },
    ),

    scenario('N73', 'poison is stepped over by a try, which gets what is behind it', async (bench) => {
      const { queue } = await poisoned(bench, 3)
      await queue.enqueue('good')
      const delivery = await soon('the wait ends', queue.receive({ timeoutMs: 5_000 }))
      assert.equal(delivery?.payload, 'good')
    }),

    scenario('N73', 'a payload that the schema refuses when it is decoded is a dead letter that says why', (bench) =>
      refusedBySchema(bench, (value) => verdict(value)),
    ),

    scenario('N73', 'a schema that takes its time does the same', (bench) =>
      refusedBySchema(bench, async (value) => {
        await pass(2)
        return verdict(value)
      }),
    ),

    scenario('N73', 'a payload that the schema refuses at the enqueue is stored nowhere', async (bench) => {
      const queue = bench.queue({ schema: schema(verdict) })
      await assert.rejects(queue.enqueue('bad'), SchemaError)
      await assert.rejects(queue.enqueueAll([{ payload: 'good' }, { payload: 'bad' }]), SchemaError)
      assert.equal(callsOf(bench.backend, 'enqueue'), 0)
      await assertDepth(queue, { enqueuedTotal: 0 })
    }),

    scenario('N73', 'a poisoned message is dead once, after a requeue too', async (bench) => {
      const { queue } = await poisoned(bench)
      assert.equal(await queue.tryReceive(), undefined)
      await until('it is dead', async () => (await queue.stats()).dead === 1)
      assert.equal(await queue.deadLetters.requeueAll(), 1)
      assert.equal(await queue.tryReceive(), undefined)
      await until('it is dead again', async () => (await queue.stats()).dead === 1)
      await assertDepth(queue, { ready: 0, claimed: 0, dead: 1 })
    }),

    scenario('N74', 'every JSON value comes back equal', async (bench) => {
      const queue = bench.queue<unknown>()
      const values = [
        '',
        ' ',
        'null',
        null,
        0,
        -0.5,
        1e21,
        true,
        false,
        [],
        {},
        [[], [{}]],
        { '': '', a: { 'b.c': [1, 'two', null] } },
        'zwölf Boxkämpfer 🐟 \u0000 \u2028 \uFFFF e\u0301',
        'x'.repeat(100_000),
      ]
      for (const value of values) await queue.enqueue(value)
      assert.deepEqual(await payloadsOf(queue), values)
    }),

    scenario('N74', 'every byte string comes back byte for byte', async (bench) => {
      const queue = bench.queue<Uint8Array>({ codec: bytes() })
      const values = byteStrings()
      for (const value of values) await queue.enqueue(value)
      const received = (await drained(queue)).map(({ payload }) => [...payload])
      assert.deepEqual(
        received,
        values.map((value) => [...value]),
      )
    }),

    scenario('N74', 'listings and dead letters show the same bytes', async (bench) => {
      const queue = bench.queue<Uint8Array>({ codec: bytes() })
      const values = byteStrings()
      await queue.enqueueAll(values.map((payload) => ({ payload })))
      const shown = await all(queue.peek())
      for (const _ of values) await (await nextNow(queue)).deadLetter('look')
      const dead = await all(queue.deadLetters)
      for (const [index, value] of values.entries()) {
        for (const item of [shown[index], dead[index]]) {
          assert.deepEqual([...(item?.bytes ?? [])], [...value])
          assert.deepEqual([...(item?.payload ?? [])], [...value])
        }
      }
    }),

    scenario('N74', 'a caller that reuses its buffer does not change what is stored', async (bench) => {
      const queue = bench.queue<Uint8Array>({ codec: bytes() })
      const buffer = Uint8Array.from([1, 2, 3])
      const stored = queue.enqueue(buffer)
      buffer.fill(9)
      await stored
      buffer.fill(8)
      const delivery = await nextNow(queue)
      assert.deepEqual([...delivery.payload], [1, 2, 3])
    }),

    scenario('N74', 'a handler that writes into its payload does not change what is stored', async (bench) => {
      const queue = bench.queue<Uint8Array>({ codec: bytes() })
      await queue.enqueue(Uint8Array.from([1, 2, 3]))
      const first = await nextNow(queue)
      first.payload.fill(0)
      await first.requeue()
      assert.deepEqual([...(await nextNow(queue)).payload], [1, 2, 3])
    }),

    scenario('N74', 'odd ids come back as they were', async (bench) => {
      const queue = bench.queue()
      const ids = ['0', ' ', 'a:b', '{a}', '*', 'ünï/🐟', '__proto__', 'a\u0000b', 'x'.repeat(500), '"', '\n', '%']
      await queue.enqueueAll(ids.map((id) => ({ id, payload: id })))
      const deliveries = await drained(queue)
      assert.deepEqual(
        deliveries.map(({ id }) => id),
        ids,
      )
      for (const id of ids) assert.equal((await queue.outcome(id)).state, 'done', JSON.stringify(id))
    }),

    ...refusals().map(([what, value, field]) =>
      scenario('X12', `${what} is refused before any I/O, since JSON would change it`, async (bench) => {
        const queue = bench.queue<unknown>({ codec: json() })
        const refusal = (error: unknown) => error instanceof PayloadError && error.field === field
        await assert.rejects(queue.enqueue(value), refusal)
        await assert.rejects(queue.enqueueAll([{ payload: 1 }, { payload: value }]), refusal)
        assert.deepEqual(bench.backend.calls, [])
      }),
    ),

    scenario('X13', 'key and headers come back as they were, in every place that shows them', async (bench) => {
      const queue = bench.queue()
      const key = 'customer/ü🐟 7'
      const headers = oddHeaders()
      await queue.enqueue('a', { id: 'a', key, headers })
      const [shown] = await all(queue.peek())
      const first = await nextNow(queue)
      await first.requeue()
      const second = await nextNow(queue)
      await second.deadLetter('look')
      const [dead] = await all(queue.deadLetters)
      await queue.deadLetters.requeue('a')
      const third = await nextNow(queue)
      for (const each of [shown, first, second, dead, third]) {
        assert.equal(each?.key, key)
        assert.deepEqual(Object.entries(each?.headers ?? {}).sort(), Object.entries(headers).sort())
      }
    }),

    scenario('X13', 'a message without key and headers has none', async (bench) => {
      const queue = bench.queue()
      await queue.enqueue('a')
      const delivery = await nextNow(queue)
      assert.equal(delivery.key, undefined)
      assert.deepEqual({ ...delivery.headers }, {})
    }),

    scenario('X13', 'a caller that changes its headers afterwards does not change what is stored', async (bench) => {
      const queue = bench.queue()
      const headers = { trace: '1' }
      const stored = queue.enqueue('a', { headers })
      headers.trace = '2'
      await stored
      assert.deepEqual({ ...(await nextNow(queue)).headers }, { trace: '1' })
    }),
  ],
}

/** A queue of strings, with messages in it that no JSON decoder takes. */
async function poisoned(bench: Bench, count = 1) {
  const poison = Uint8Array.from([0x7b, 0x00, 0xff, 0xfe])
  const writer = bench.queue<string>({ codec: { ...json<string>(), encode: () => poison } satisfies Codec<string> })
  await writer.enqueueAll(range(count).map(() => ({ payload: '' })))
  const queue = await twin(bench, writer)
  return { queue, poison }
}

/** The same queue, read with the codec as it should be, through the backend under test. */
async function twin(bench: Bench, queue: Queue<string>, options: object = {}) {
  const reader = await bench.peer<string>(queue, { codec: json<string>(), backend: bench.backend, ...options })
  return reader
}

async function refusedBySchema(bench: Bench, check: (value: unknown) => Verdict | Promise<Verdict>): Promise<void> {
  const writer = bench.queue()
  await writer.enqueueAll([{ payload: 'bad', id: 'bad' }, { payload: 'good' }])
  const queue = await twin(bench, writer, { schema: schema(check) })
  const delivery = await soon('the wait ends', queue.receive({ timeoutMs: 5_000 }))
  assert.equal(delivery?.payload, 'good')
  await delivery.ack()
  await until('the other is dead', async () => (await queue.stats()).dead === 1)
  const [letter] = await all(queue.deadLetters)
  assert.equal(letter?.id, 'bad')
  assert.match(letter.reason, /must be good/)
  assert.equal(Buffer.from(letter.bytes).toString(), '"bad"')
}

type Schema = NonNullable<QueueOptions<string>['schema']>

type Verdict = { readonly value: string; readonly issues?: undefined } | { readonly issues: readonly SchemaIssue[] }

function verdict(value: unknown): Verdict {
  return value === 'bad' ? { issues: [{ message: 'must be good' }] } : { value: String(value) }
}

function schema(validate: (value: unknown) => Verdict | Promise<Verdict>): Schema {
  return { '~standard': { version: 1, vendor: 'conformance', validate } }
}

function byteStrings(): Uint8Array[] {
  return [
    Uint8Array.of(),
    Uint8Array.of(0),
    Uint8Array.of(0, 0, 0),
    Uint8Array.of(0xff),
    Uint8Array.of(0xc3, 0x28),
    Uint8Array.from(range(256)),
    Buffer.from('in the middle of a pool').subarray(3, 9),
    new Uint8Array(70_000).map((_, index) => index % 251),
  ]
}

function refusals(): [what: string, value: unknown, field: string][] {
  const cycle: Record<string, unknown> = {}
  cycle['self'] = [cycle]
  class Money {
    readonly cents = 1
  }
  return [
    ['a bigint', 1n, 'payload'],
    ['a Date', { at: new Date(0) }, 'payload.at'],
    ['NaN', [1, Number.NaN], 'payload[1]'],
    ['undefined', undefined, 'payload'],
    ['a hole in an array', [undefined], 'payload[0]'],
    ['a Map', new Map(), 'payload'],
    ['a class instance', { price: new Money() }, 'payload.price'],
    ['a function', { f: pass }, 'payload.f'],
    ['a symbol', Symbol.iterator, 'payload'],
    ['a cycle', cycle, 'payload.self[0]'],
  ]
}

/** Names and values that a store of records can trip over. */
function oddHeaders(): Record<string, string> {
  return JSON.parse(
    '{ "": "empty name", "empty value": "", "__proto__": "own", "constructor": "c", "ü🐟": "\\u0000\\n", "a:b=c": "1" }',
  ) as Record<string, string>
}
