/** A queue of a hundred thousand messages. */
import { statSync } from 'node:fs'
import { expect, it } from 'vitest'
import { bundled } from '../../support/bundled.js'
import { Child } from '../../support/child.js'
import type { Loaded } from './children/load.js'
import { backendOn, Client, connect, expectWhole, freshPath } from './rig.js'

const load = await bundled(new URL('./children/load.ts', import.meta.url))

function quantile(sorted: readonly number[], share: number): number {
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] as number
}

async function fill(client: Client, count: number): Promise<void> {
  for (let from = 0; from < count; from += 5_000) {
    const size = Math.min(5_000, count - from)
    await client.enqueue(
      ...Array.from({ length: size }, (_, index) => ({
        id: `d${from + index}`,
        bytes: Buffer.from('"x"'),
        priority: index % 3,
      })),
    )
  }
}

it('S12 a deep queue that is worked on lets the loop turn, and counts right', async () => {
  const path = freshPath()
  const client = new Client(backendOn(path), 'deep')
  await fill(client, 100_000)
  const child = new Child<Loaded>(load, [path, '3000'])
  const { handled, gaps, stats } = await child.hear()
  await child.end()
  const [half, high] = [quantile(gaps, 0.5), quantile(gaps, 0.99)]
  expect(half).toBeLessThan(10)
  expect(high).toBeLessThan(60)
  expect(handled).toBeGreaterThan(500)
  expect(stats.claimed).toBe(0)
  expectWhole(connect(path))
})

it('S12 a claim at a hundred thousand costs what it costs at a thousand', async () => {
  async function costAt(depth: number): Promise<number> {
    const client = new Client(backendOn(freshPath()), 'deep')
    await fill(client, depth)
    const costs: number[] = []
    for (let round = 0; round < 300; round += 1) {
      const began = performance.now()
      await client.ack(await client.one())
      costs.push(performance.now() - began)
    }
    return quantile(
      costs.sort((a, b) => a - b),
      0.5,
    )
  }
  const [shallow, deep] = [await costAt(1_000), await costAt(100_000)]
  expect(deep).toBeLessThan(3 * shallow + 1)
})

it('S13 a file does not grow with what has flown through it', async () => {
  const path = freshPath()
  const client = new Client(backendOn(path), 'deep')
  await client.driver.configure({ retention: { outcomesMs: 3_600_000, maxOutcomes: 10 } })
  for (let round = 0; round < 200; round += 1) {
    await client.enqueue(
      ...Array.from({ length: 50 }, (_, index) => ({ id: `${round}-${index}`, bytes: new Uint8Array(2_000) })),
    )
    const claims = await client.claim(50)
    const acks = claims.map(({ id, token }) => ({ kind: 'ack', id, token }) as const)
    await client.driver.settle(acks, client.token())
  }
  // 20 MB of payloads, and more than twice that in the log, which begins anew again and again.
  expect(statSync(path).size).toBeLessThan(2 * 1024 * 1024)
  expect(statSync(`${path}-wal`).size).toBeLessThan(20 * 1024 * 1024)
})
