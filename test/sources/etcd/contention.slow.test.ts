/** Many consumers of one queue, each with a client of its own, as in as many processes. */
import { mergeMap, pipe, type Queue, run } from 'millrace'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { expectStats } from '../../support/queues.js'
import { Effects } from '../../support/rig.js'
import { type EtcdProxy, startEtcdProxy } from '../../support/servers/etcd-proxy.js'
import { type EtcdServer, startEtcd } from '../../support/servers/etcd-server.js'
import { idsOf } from '../../support/traffic.js'
import { until } from '../../support/wait.js'
import { isTxn, lostIn, Rig } from './rig.js'

const CONSUMERS = 8

let server: EtcdServer

beforeAll(async () => {
  server = await startEtcd()
})

afterAll(() => server.stop())

interface Rivals {
  readonly proxy: EtcdProxy
  readonly producer: Queue<string>
  readonly queues: readonly Queue<string>[]
}

async function rivals(): Promise<Rivals> {
  const rig = new Rig(onTestFinished)
  const proxy = await rig.use(startEtcdProxy(server.port))
  const producer = rig.queue(rig.backend(server.url))
  const queues = Array.from({ length: CONSUMERS }, () => rig.queue(rig.backend(proxy.url), {}, producer.name))
  return { proxy, producer, queues }
}

/** All of them take part until each message is handled. */
async function share(queues: readonly Queue<string>[], count: number, lanes: number): Promise<Effects> {
  const effects = new Effects()
  const cancel = new AbortController()
  const shares = queues.map(() => 0)
  const runs = queues.map((queue, index) =>
    run(
      pipe(
        queue.source(),
        mergeMap(async ({ id }) => {
          effects.note(id)
          shares[index] = (shares[index] ?? 0) + 1
        }, lanes),
      ),
      { signal: cancel.signal },
    ),
  )
  await until('all are handled', () => effects.size === count, 60_000)
  cancel.abort()
  await Promise.all(runs)
  // Nobody who works in small portions is left out by those who are faster.
  if (lanes * queues.length < count / 10) expect(shares.filter((share) => share > 0).length).toBe(queues.length)
  return effects
}

async function fill(producer: Queue<string>, ids: readonly string[]): Promise<void> {
  for (let from = 0; from < ids.length; from += 100) {
    await producer.enqueueAll(ids.slice(from, from + 100).map((id) => ({ payload: id, id })))
  }
}

describe('eight consumers of one queue', () => {
  it.each([1, 10, 100])(
    'N3 that have %i handlers each handle each message once, and lose less than one race for each',
    async (lanes) => {
      const { proxy, producer, queues } = await rivals()
      const count = { 1: 240, 10: 400, 100: 600 }[lanes] ?? 0
      await fill(producer, idsOf(count))
      const effects = await share(queues, count, lanes)
      const perMessage = lostIn(proxy) / count
      console.log(
        `lanes ${lanes}: ${lostIn(proxy)} races lost for ${count} messages, ${proxy.count(isTxn) / count} transactions each`,
      )
      expect(effects.doubled).toEqual([])
      expect(perMessage).toBeLessThan(1)
      await expectStats(producer, { ackedTotal: count, enqueuedTotal: count, ready: 0, claimed: 0, dead: 0 })
    },
  )

  it('N3 that wait get each message once as it comes, and lose less than one race for each', async () => {
    const { proxy, producer, queues } = await rivals()
    // Enough of them that what it costs to find out how many others wait is little of it.
    const ids = idsOf(300)
    const sharing = share(queues, ids.length, 1)
    for (const id of ids) await producer.enqueue(id, { id })
    const effects = await sharing
    console.log(
      `as they come: ${lostIn(proxy)} races lost for ${ids.length} messages, ${proxy.count(isTxn) / ids.length} transactions each`,
    )
    expect(effects.doubled).toEqual([])
    expect(lostIn(proxy) / ids.length).toBeLessThan(1)
    await expectStats(producer, { ackedTotal: ids.length, ready: 0, claimed: 0 })
  })
})

describe('eight producers of one queue', () => {
  it('E17 put in each message once, in the order of each, and nobody gives up', async () => {
    const { producer, queues, proxy } = await rivals()
    await Promise.all(
      queues.map(async (queue, index) => {
        for (let count = 0; count < 25; count += 1)
          await queue.enqueue(`${index}-${count}`, { id: `${index}-${count}` })
      }),
    )
    const seen: string[] = []
    for await (const { id } of producer.peek({ state: 'ready' })) seen.push(id)
    for (let index = 0; index < CONSUMERS; index += 1) {
      const own = seen.filter((id) => id.startsWith(`${index}-`))
      expect(own).toEqual(Array.from({ length: 25 }, (_, count) => `${index}-${count}`))
    }
    console.log(`producers: ${lostIn(proxy)} races lost for 200 messages`)
    // Two of eight are seen in a run.
    expect(lostIn(proxy) / 200).toBeLessThan(4)
  })
})
