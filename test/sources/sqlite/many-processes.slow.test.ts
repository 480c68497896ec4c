/** Many processes of one host on one file. */
import { describe, expect, it } from 'vitest'
import { bundled } from '../../support/bundled.js'
import { Child } from '../../support/child.js'
import { until } from '../../support/wait.js'
import type { Consumed } from './children/consume.js'
import type { Produced } from './children/enqueue.js'
import { backendOn, connect, expectWhole, freshPath, queueOn } from './rig.js'

const consume = await bundled(new URL('./children/consume.ts', import.meta.url))
const enqueue = await bundled(new URL('./children/enqueue.ts', import.meta.url))

function handled(consumers: readonly Child<Consumed>[]): string[] {
  return consumers.flatMap(({ said }) => said.flatMap(({ ids }) => ids))
}

describe('8 processes consume what 2 enqueue', () => {
  it('S1, H8 none of 1 000 messages is lost, none is handled twice, and the file adds up', async () => {
    const path = freshPath()
    const consumers = Array.from({ length: 8 }, () => new Child<Consumed>(consume, [path]))
    await Promise.all(consumers.map((child) => child.hear()))
    const producers = ['a', 'b'].map((name) => new Child<Produced>(enqueue, [path, name, '500']))
    const produced = (await Promise.all(producers.map((child) => child.hear()))).flatMap(({ ids }) => ids)
    await Promise.all(producers.map((child) => child.end()))
    expect(produced).toHaveLength(1_000)
    const queue = queueOn(backendOn(path), {}, 'shared')
    await until('all are handled', () => handled(consumers).length >= 1_000, 60_000)
    for (const child of consumers) child.tell('stop')
    for (const child of consumers) {
      const { released } = await child.hear((said) => said.released !== undefined)
      expect(released).toMatchObject({ abandoned: 0 })
      await child.end()
    }
    expect(handled(consumers).sort()).toEqual(produced.sort())
    expect(await queue.stats()).toMatchObject({
      ready: 0,
      claimed: 0,
      delayed: 0,
      dead: 0,
      enqueuedTotal: 1_000,
      ackedTotal: 1_000,
    })
    // Each took its part: nobody was kept from the lock.
    for (const child of consumers) expect(handled([child]).length).toBeGreaterThan(0)
    expectWhole(connect(path))
  })
})

describe('the same ids from two processes', () => {
  it('S1 are stored once', async () => {
    const path = freshPath()
    const producers = ['a', 'a'].map((name) => new Child<Produced>(enqueue, [path, name, '300']))
    for (const child of producers) expect((await child.hear()).ids).toHaveLength(300)
    const queue = queueOn(backendOn(path), {}, 'shared')
    expect(await queue.stats()).toMatchObject({ ready: 300, enqueuedTotal: 300 })
    expectWhole(connect(path))
  })
})
