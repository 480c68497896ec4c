/** Threads and forks: each has a connection of its own, and all share the file. */
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { Worker } from 'node:worker_threads'
import { describe, expect, it, onTestFinished } from 'vitest'
import { bundled } from '../../support/bundled.js'
import { until } from '../../support/wait.js'
import type { Worked } from './children/worker.js'
import { backendOn, connect, expectWhole, freshPath, queueOn } from './rig.js'

const program = await bundled(new URL('./children/worker.ts', import.meta.url))

interface Helper {
  readonly said: (Worked | 'started')[]
  stop(): Promise<unknown>
}

function thread(path: string): Helper {
  const worker = new Worker(program, { workerData: { path } })
  const said: Helper['said'] = []
  worker.on('message', (message) => said.push(message))
  onTestFinished(async () => {
    await worker.terminate()
  })
  return { said, stop: () => worker.terminate() }
}

function forked(path: string): Helper {
  const child = fork(program, [path])
  const said: Helper['said'] = []
  child.on('message', (message) => said.push(message as Worked))
  onTestFinished(() => void child.kill('SIGKILL'))
  return {
    said,
    stop: () => {
      child.kill('SIGKILL')
      return once(child, 'exit')
    },
  }
}

const start = { 'a worker thread': thread, 'a fork': forked }

describe.each(Object.entries(start))('%s', (_, begin) => {
  it('S14 and the main thread share the file through backends of their own', async () => {
    const path = freshPath()
    const backend = backendOn(path)
    const queue = queueOn(backend, {}, 'shared')
    await queue.stats()
    const helper = begin(path)
    await until('it has started', () => helper.said.length > 0)
    const source = queue.source()
    const mine: string[] = []
    source.subscribe((delivery) => {
      mine.push(delivery.payload)
      void delivery.ack()
    })
    for (let index = 0; index < 400; index += 1) await queue.enqueue(`${index}`)
    await until('all are handled', async () => (await queue.stats()).ackedTotal === 400)
    await source.stop()
    await queue.enqueue('end')
    await until('it has ended', () => helper.said.length > 1)
    const theirs = (helper.said[1] as Worked).ids
    expect([...mine, ...theirs].map(Number).sort((a, b) => a - b)).toEqual(Array.from({ length: 400 }, (_, i) => i))
    expect(theirs.length).toBeGreaterThan(0)
    // The message that ended it was given back when it left its loop.
    expect(await queue.stats()).toMatchObject({ ready: 1, claimed: 0, ackedTotal: 400 })
    expectWhole(connect(path))
  })

  it('S14 that is ended at once, at work, leaves the others at work and the file whole', async () => {
    const path = freshPath()
    const queue = queueOn(backendOn(path), {}, 'shared')
    await queue.stats()
    const helper = begin(path)
    await until('it has started', () => helper.said.length > 0)
    const working = queue.enqueueAll(Array.from({ length: 300 }, (_, index) => ({ payload: `${index}` })))
    await until('it works', async () => (await queue.stats()).ackedTotal > 5)
    await helper.stop()
    await working
    const { ackedTotal, claimed } = await queue.stats()
    expect(claimed).toBeLessThanOrEqual(1)
    expect(await queue.stats()).toMatchObject({ ready: 300 - ackedTotal - claimed, enqueuedTotal: 300 })
    expect((await queue.tryReceive())?.attempt).toBe(1)
    expectWhole(connect(path))
  })
})
