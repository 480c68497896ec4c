/**
 * What a backend says that it cannot do: it says so again, by name, when somebody asks for it.
 */
import assert from 'node:assert/strict'
import type { DriverFeatures } from '../../driver.js'
import { UnsupportedError } from '../../errors.js'
import { type Bench, type Concern, scenario } from './kit.js'
import { nextNow } from './steps.js'
import { statsAre } from './wait.js'

type Flag = keyof DriverFeatures

const without = (flag: Flag) => (features: DriverFeatures) => !features[flag]

function unsupported(flag: Flag): (error: unknown) => boolean {
  return (error) => error instanceof UnsupportedError && error.feature === flag
}

async function noGroups(bench: Bench): Promise<void> {
  assert.throws(() => bench.queue().source({ group: 'g' }), unsupported('groups'))
}

async function noPartitions(bench: Bench): Promise<void> {
  const queue = bench.queue()
  assert.throws(() => queue.source({ partition: 'p' }), unsupported('partitions'))
  await assert.rejects(queue.enqueue('a', { partition: 'p' }), unsupported('partitions'))
  await statsAre(queue, { enqueuedTotal: 0 })
}

async function noOwnTransactions(bench: Bench): Promise<void> {
  const queue = bench.queue()
  assert.throws(() => queue.enqueueIn({}, 'a'), unsupported('ownTransactions'))
  await queue.enqueue('a')
  const delivery = await nextNow(queue)
  assert.throws(() => delivery.ackIn({}), unsupported('ownTransactions'))
  assert.equal(await delivery.ack(), 'settled')
}

export const featureFlags: Concern = {
  name: 'feature flags',
  scenarios: [
    scenario('X35', 'a backend without groups refuses them by name', noGroups, without('groups')),
    scenario('X35', 'a backend without partitions refuses them by name', noPartitions, without('partitions')),
    scenario(
      'X35',
      "a backend that cannot take part in the caller's transactions refuses that by name",
      noOwnTransactions,
      without('ownTransactions'),
    ),
  ],
}
