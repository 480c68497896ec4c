/** What a process leaves behind that was killed, as somebody finds it who has only the files. */
import { copyFileSync, existsSync, readFileSync, truncateSync, writeFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import type { Queue, QueueStats } from 'millrace'
import { describe, expect, it } from 'vitest'
import { conserved } from '../../../src/testing/conserved.js'
import { bundled } from '../../support/bundled.js'
import { Child } from '../../support/child.js'
import type { Left } from './children/leave.js'
import { backendOn, connect, expectWhole, freshFolder, freshPath, queueOn } from './rig.js'

const leave = await bundled(new URL('./children/leave.ts', import.meta.url))

/** A killed process, and its file with the log beside it, nothing of which was copied into the file in the end. */
async function killed(): Promise<{ left: Left; path: string }> {
  const path = freshPath()
  const child = new Child<Left>(leave, [path])
  const left = await child.hear()
  await child.kill()
  return { left, path }
}

function copied(path: string, ...suffixes: string[]): string {
  const copy = join(freshFolder(), basename(path))
  for (const suffix of ['', ...suffixes]) copyFileSync(path + suffix, copy + suffix)
  return copy
}

async function idsOf(queue: Queue<string>): Promise<Left['ids']> {
  const ids = { ready: [] as string[], delayed: [] as string[], claimed: [] as string[], dead: [] as string[] }
  for (const state of ['ready', 'delayed', 'claimed'] as const)
    for await (const { id } of queue.peek({ state })) ids[state].push(id)
  for await (const { id } of queue.deadLetters) ids.dead.push(id)
  return ids
}

function still({ oldestReadyAgeMs: _, ...stats }: QueueStats) {
  return stats
}

describe('a killed process', () => {
  it('S6 leaves a log that holds what was answered: with it, all is exactly as it was', async () => {
    const { left, path } = await killed()
    expect(existsSync(`${path}-wal`)).toBe(true)
    for (const copy of [copied(path, '-wal'), copied(path, '-wal', '-shm'), path]) {
      const queue = queueOn<string>(backendOn(copy), {}, 'left')
      expect(still(await queue.stats())).toEqual(still(left.stats))
      expect(await idsOf(queue)).toEqual(left.ids)
      expect(await queue.outcome('0', { timeoutMs: 0 })).toEqual({ state: 'done', result: 0 })
      expectWhole(connect(copy))
    }
  })

  it('S6 whose log was cut off or spoilt at its end leaves the state of some instant, whole', async () => {
    const { left, path } = await killed()
    const log = readFileSync(`${path}-wal`)
    const totals: number[] = []
    for (const share of [0.2, 0.5, 0.9, 0.999]) {
      const cut = copied(path, '-wal')
      truncateSync(`${cut}-wal`, Math.floor(log.length * share))
      const spoilt = copied(path, '-wal')
      const bytes = Buffer.from(log)
      bytes.fill(0xa5, Math.floor(log.length * share))
      writeFileSync(`${spoilt}-wal`, bytes)
      const [one, other] = await Promise.all(
        [cut, spoilt].map(async (copy) => {
          const stats = await queueOn(backendOn(copy), {}, 'left').stats()
          expectWhole(connect(copy))
          return stats
        }),
      )
      expect(conserved(one as QueueStats)).toBe(true)
      expect(still(one as QueueStats)).toEqual(still(other as QueueStats))
      totals.push((one as QueueStats).enqueuedTotal)
    }
    expect(totals.at(0)).toBeLessThan(left.stats.enqueuedTotal)
    expect(totals).toEqual([...totals].sort((a, b) => a - b))
  })

  it('S6, N25 leaves claims to those who come after it, when their leases are over', async () => {
    const { left, path } = await killed()
    // The leases of the dead process are an hour long; this is what an hour does.
    connect(path).exec('UPDATE millrace_messages SET leaseAt = leaseAt - 3600000 WHERE state = 2')
    const queue = queueOn<string>(backendOn(path), {}, 'left')
    expect(await queue.stats()).toMatchObject({ claimed: 0, ready: left.stats.ready + left.stats.claimed })
    const [first] = left.ids.claimed
    const delivery = await queue.receive()
    expect([delivery?.id, delivery?.attempt, delivery?.deliveryCount]).toEqual([first, 2, 2])
    expectWhole(connect(path))
  })
})
