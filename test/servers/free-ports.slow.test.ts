import { createServer } from 'node:net'
import { expect, it } from 'vitest'
import { bundled } from '../support/bundled.js'
import { Child } from '../support/child.js'
import { reservePort } from '../support/servers/free-ports.js'

const program = await bundled(new URL('children/reserve-ports.ts', import.meta.url))

function reserveElsewhere(count: number): Child<number[]> {
  return new Child(program, [String(count)])
}

it('gives no port to two processes, nor any of those reserved along', async () => {
  const children = Array.from({ length: 4 }, () => reserveElsewhere(300))
  const ports = (await Promise.all(children.map((child) => child.hear()))).flat()
  const all = ports.flatMap((port) => [port, port + 10_000])
  expect(new Set(all).size).toBe(4 * 300 * 2)
  expect(Math.max(...ports)).toBeLessThan(55_536)
})

it('gives a port that can be listened on', async () => {
  const { port, release } = await reservePort()
  const server = createServer()
  await new Promise<void>((resolve, reject) => server.once('error', reject).listen(port, '127.0.0.1', resolve))
  await new Promise((resolve) => server.close(resolve))
  await release()
})
