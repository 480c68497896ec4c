import { inspect as inspectDeeply } from 'node:util'
import { BackendError, BackendUnavailableError, MillraceError, Queue } from 'millrace'
import { type RedisTarget, redisBackend } from 'millrace/redis'
import { afterAll, describe, expect, it, onTestFinished, vi } from 'vitest'
import { eventsOf } from '../../support/events.js'
import { reservePort } from '../../support/servers/free-ports.js'
import { startRedis } from '../../support/servers/redis-server.js'
import { backendOn, Client, failureOf, inspect, queueOn } from './harness.js'

const SECRET = 's3cr3t'
const RIGHT = 'r1ght-w0rd'

const server = await startRedis()
await server.command('CONFIG', 'SET', 'requirepass', RIGHT)
afterAll(() => server.stop())

function expectNoSecret(...errors: readonly unknown[]): void {
  for (const error of errors) {
    const shown = inspectDeeply(error, { depth: 10, showHidden: true, getters: true })
    expect(shown).not.toContain(SECRET)
    expect(shown).not.toContain(RIGHT)
    expect(JSON.stringify(error)).not.toContain(SECRET)
  }
}

/** All that this process says beside its errors. */
function said(): string[] {
  const lines: string[] = []
  const keep = (...args: unknown[]) => void lines.push(args.map((each) => inspectDeeply(each, { depth: 10 })).join(' '))
  for (const method of ['log', 'warn', 'error'] as const) vi.spyOn(console, method).mockImplementation(keep)
  process.on('warning', keep)
  onTestFinished(() => void process.off('warning', keep))
  return lines
}

describe('a password in a bad target', () => {
  it.each([
    ['another protocol', `http://user:${SECRET}@h`],
    ['a slash in the password, so that it is no URL', `redis://user:a/${SECRET}@127.0.0.1:6379`],
    ['an at sign in the password', `http://user:a@${SECRET}@h`],
    ['a hash in the password', `redis://:a#${SECRET}@127.0.0.1:6379`],
    ['no slashes', `redis:user:${SECRET}@127.0.0.1:6379`],
    ['no protocol', `user:${SECRET}@127.0.0.1:6379`],
    ['only a password', `:${SECRET}@127.0.0.1`],
    ['in the query', `http://127.0.0.1?password=${SECRET}`],
    ['a list of nodes', [{ host: '127.0.0.1', password: SECRET }]],
  ])('is in no error: %s', async (_, target) => {
    // Some of these are URLs for a client, which then finds no server: that is another test's concern.
    const error = await failureOf(() => {
      redisBackend(target as RedisTarget)
      throw new Error('taken for a URL')
    })
    expectNoSecret(error)
  })

  it('is in no error when it is given as an option of the backend', async () => {
    const error = await failureOf(() => redisBackend('redis://127.0.0.1:1', { password: SECRET } as never))
    expect(error).toBeInstanceOf(MillraceError)
    expectNoSecret(error)
  })
})

describe('a wrong password', () => {
  it.each<[string, RedisTarget]>([
    ['in a URL', `redis://:${SECRET}@127.0.0.1:${server.port}`],
    ['with a user, in a URL', `redis://somebody:${SECRET}@127.0.0.1:${server.port}`],
    ['in options', { host: '127.0.0.1', port: server.port, password: SECRET }],
    ['that is missing', server.url],
  ])('%s is a typed error of calls, and in no error nor warning', async (_, target) => {
    const lines = said()
    const client = new Client(backendOn(target))
    const errors = [
      await failureOf(() => client.enqueue('a')),
      await failureOf(() => client.claim()),
      await failureOf(() => client.stats()),
    ]
    for (const error of errors) {
      expect(error).toBeInstanceOf(MillraceError)
      expect(error).toSatisfy((each) => each instanceof BackendError || each instanceof BackendUnavailableError)
      expect(inspectDeeply(error)).toMatch(/WRONGPASS|NOAUTH/)
    }
    expectNoSecret(...errors, ...lines)
    expect(lines).toEqual([])
  })

  it('ends a source with the words of the server, as no waiting makes it right; with the right one all is there', async () => {
    const redis = inspect(server, { password: RIGHT })
    const urlOf = (user: string) => `redis://${user}:${SECRET}@127.0.0.1:${server.port}`
    const source = queueOn(backendOn(urlOf('late')), {}, 'late').source()
    const events = eventsOf(source)
    const error = await new Promise((resolve) => source.subscribe({ error: resolve }))
    expect(error).toBeInstanceOf(BackendError)
    expect((error as Error).message).toContain('WRONGPASS')
    expectNoSecret(error, ...events)
    await redis.acl('SETUSER', 'late', 'on', `>${SECRET}`, '~*', '&*', '+@all')
    const queue = queueOn(backendOn(urlOf('late')), {}, 'late')
    await queue.enqueue('x')
    expect((await queue.receive({ timeoutMs: 2_000 }))?.payload).toBe('x')
  })
})

describe('a server that nobody runs', () => {
  it('is told of without the password of its URL', async () => {
    const { port, release } = await reservePort()
    onTestFinished(release)
    const lines = said()
    const queue = new Queue('q', { backend: backendOn(`redis://user:${SECRET}@127.0.0.1:${port}`) })
    const client = new Client(backendOn({ host: '127.0.0.1', port, password: SECRET, username: 'user' }))
    const error = await failureOf(() => client.stats())
    expect(error).toBeInstanceOf(BackendUnavailableError)
    expect(inspectDeeply(error)).toContain('ECONNREFUSED')
    expectNoSecret(error, queue, client.driver, ...lines)
    await queue.close()
  })
})
