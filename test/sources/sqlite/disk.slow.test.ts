/** Disks that are full or cannot be written, made of mounts that only the child sees. */
import { spawnSync } from 'node:child_process'
import { describe, expect, it } from 'vitest'
import { conserved } from '../../../src/testing/conserved.js'
import { bundled } from '../../support/bundled.js'
import { Child } from '../../support/child.js'
import type { DiskReport } from './children/disk.js'
import { backendOn, clientOn, connect, expectWhole, freshFolder, freshPath, queueOn } from './rig.js'

const UNSHARE = ['unshare', '--user', '--map-root-user', '--mount']
/** A disk of its own on the folder, then the program. */
const SMALL_DISK = 'mount -t tmpfs -o size=48m tmpfs "$0" && exec "$@"'
/** The folder as it is, read-only, then the program. */
const READ_ONLY = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'

function mounted(script: string, folder: string): string[] {
  return [...UNSHARE, 'sh', '-c', script, folder, process.execPath]
}

const [command, ...rest] = mounted(SMALL_DISK, '/tmp')
const mountable = spawnSync(command as string, [...rest, '--version']).status === 0
const where = mountable ? '' : ' (skipped: a mount of its own needs Linux with user namespaces)'

const disk = await bundled(new URL('./children/disk.ts', import.meta.url))
const readOnly = await bundled(new URL('./children/read-only.ts', import.meta.url))

describe('a full disk', () => {
  it.skipIf(!mountable)(
    `S10, G10 is an error, never an empty queue; nothing is lost, and it goes on${where}`,
    async () => {
      const folder = freshFolder()
      const child = new Child<DiskReport>(disk, [folder], mounted(SMALL_DISK, folder))
      const report = await child.hear()
      await child.end()
      const { atFirst, stored, refused, claims, settled, full, after, drained, last } = report
      for (const code of [...atFirst, ...refused]) expect(code).toBe('ERR_MILLRACE_BACKEND')
      expect(stored.length).toBeGreaterThan(50)
      // A claim writes little, and may find room in what is there; but it never finds nothing.
      expect(claims).not.toContain('nothing')
      for (const answer of settled) expect(['settled', 'ERR_MILLRACE_BACKEND']).toContain(answer)
      if (typeof full === 'string') expect(full).toBe('ERR_MILLRACE_BACKEND')
      else expect(full).toMatchObject({ ready: stored.length, enqueuedTotal: stored.length })
      expect(conserved(after)).toBe(true)
      expect(after.enqueuedTotal).toBe(stored.length)
      expect(new Set(drained)).toEqual(new Set([...stored, 'new']))
      expect(drained).toHaveLength(stored.length + 1)
      expect(last).toMatchObject({ ready: 0, claimed: 0, ackedTotal: stored.length + 1 })
    },
  )
})

describe('a disk that cannot be written', () => {
  it.skipIf(!mountable)(`S10 is an error at every call, and the messages are still there${where}`, async () => {
    const path = freshPath()
    const writer = clientOn(path)
    await writer.enqueue('a', 'b')
    await writer.backend.close()
    const folder = path.slice(0, path.lastIndexOf('/'))
    const child = new Child<string[]>(readOnly, [folder], mounted(READ_ONLY, folder))
    const codes = await child.hear()
    await child.end()
    expect(new Set(codes)).toEqual(new Set(['ERR_MILLRACE_BACKEND']))
    expect(await queueOn(backendOn(path)).stats()).toMatchObject({ ready: 2, enqueuedTotal: 2 })
    expectWhole(connect(path))
  })
})
