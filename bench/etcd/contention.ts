/** What eight consumers of one queue, each with a client of its own, cost one another. */
import { type EtcdProxy, startEtcdProxy } from '../../test/support/servers/etcd-proxy.js'
import { isLost, txnAnswered, txnAsked } from '../../test/support/servers/etcd-wire.js'
import { consumeAll, fill } from '../messages.js'
import { type Sample, type Scenario, timed } from '../runner.js'
import { scaled } from '../trial.js'
import type { Server } from './server.js'
import { BATCH, type Connection, type Product, type Store } from './store.js'

const CONSUMERS = 8
const MESSAGES = 1_600
const SIZES = [1, 10]

/** All calls go through a proxy that counts them, so that the times are not those of the server alone. */
export function contentionScenarios(server: Server, products: readonly Product[]): Scenario[] {
  return SIZES.map((n) => ({
    title: `contention: ${CONSUMERS} consumers of one queue, n = ${n} in each, seen by a proxy`,
    baseline: 'one transaction per message',
    rounds: 3,
    contenders: products.map((product) => ({
      name: product.name,
      run: async () => {
        await server.clear()
        const proxy = await startEtcdProxy(server.port)
        try {
          return await share(server, proxy, product, n)
        } finally {
          await proxy.stop()
        }
      },
    })),
  }))
}

async function share(server: Server, proxy: EtcdProxy, product: Product, n: number): Promise<Sample> {
  const count = scaled(MESSAGES)
  const producer = await product.connect(server.url)
  const consumers = await Promise.all(Array.from({ length: CONSUMERS }, () => product.connect(proxy.url)))
  const store = await producer.open('bench')
  await fill(count, (payloads) => store.enqueueAll(payloads), BATCH)
  const sample = await timed(count, () => consumeTogether(consumers, count, n))
  await Promise.all([producer, ...consumers].map((connection) => connection.close()))
  return { ...sample, amounts: amountsOf(proxy, count) }
}

async function consumeTogether(consumers: readonly Connection[], count: number, n: number): Promise<void> {
  const stores = await Promise.all(consumers.map((consumer) => consumer.open('bench')))
  const together: Store['consume'] = (size, handler, signal) =>
    Promise.all(stores.map((store) => store.consume(size, handler, signal)))
  await consumeAll(together, n, count, () => 1)
}

function amountsOf(proxy: EtcdProxy, count: number) {
  const txns = proxy.calls.filter(({ method, reply }) => method === 'KV/Txn' && reply !== undefined)
  const lost = txns.filter(({ request, reply }) => isLost(txnAsked(request), txnAnswered(reply as Buffer)))
  const reads = proxy.count(({ method }) => method === 'KV/Range')
  return {
    'races lost per message': lost.length / count,
    'transactions per message': txns.length / count,
    'reads apart per message': reads / count,
  }
}
