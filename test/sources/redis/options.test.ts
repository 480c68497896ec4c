import { Cluster } from 'ioredis'
import { InvalidOptionError, UnsupportedError } from 'millrace'
import { redisBackend } from 'millrace/redis'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { failureOf } from './harness.js'

const NOWHERE = { host: '127.0.0.1', port: 1, lazyConnect: true }

describe('the target of redisBackend', () => {
  it.each([
    ['undefined', undefined],
    ['null', null],
    ['a number', 42],
    ['an empty string', ''],
    ['another protocol', 'http://127.0.0.1:6379'],
    ['no protocol', '127.0.0.1:6379'],
    ['a list', [{ host: '127.0.0.1' }]],
    ['true', true],
    ['a function', () => undefined],
  ])('is refused before any I/O, naming the field: %s', async (_, target) => {
    const error = await failureOf(() => redisBackend(target as never))
    expect(error).toBeInstanceOf(InvalidOptionError)
    expect((error as InvalidOptionError).field).toBe('target')
    expect(error.message).toMatch(/^target must be /)
  })

  it('is not taken for options where it is a client of another kind, which would mean a server of this machine', async () => {
    const nodeRedis = { sendCommand: () => undefined, connect: () => undefined, isOpen: false }
    expect(await failureOf(() => redisBackend(nodeRedis as never))).toBeInstanceOf(InvalidOptionError)
  })
})

describe('the options of redisBackend', () => {
  it.each([
    ['an unknown one', 'redisBackend.hashtag', { hashtag: 'a' }],
    ['an empty hash tag', 'redisBackend.hashTag', { hashTag: '' }],
    ['a hash tag that is a number', 'redisBackend.hashTag', { hashTag: 7 }],
    ['half a character', 'redisBackend.hashTag', { hashTag: '\ud800' }],
    ['a hash tag that is too long', 'redisBackend.hashTag', { hashTag: 'x'.repeat(513) }],
    ['fewer than no replicas', 'redisBackend.replicas', { replicas: -1 }],
    ['half a replica', 'redisBackend.replicas', { replicas: 1.5 }],
    ['too many replicas', 'redisBackend.replicas', { replicas: 101 }],
    ['a number as text', 'redisBackend.replicas', { replicas: '1' }],
    ['a list', 'redisBackend', []],
    ['null', 'redisBackend', null],
  ])('are refused naming the field: %s', async (_, field, options) => {
    const error = await failureOf(() => redisBackend(NOWHERE, options as never))
    expect(error).toBeInstanceOf(InvalidOptionError)
    expect((error as InvalidOptionError).field).toBe(field)
  })

  it('has no replicas to wait for in a cluster', async () => {
    const cluster = new Cluster([NOWHERE], { lazyConnect: true })
    onTestFinished(() => cluster.disconnect())
    const error = await failureOf(() => redisBackend(cluster, { replicas: 1 }))
    expect(error).toBeInstanceOf(UnsupportedError)
    expect(error).toMatchObject({ code: 'ERR_MILLRACE_UNSUPPORTED', backend: 'redis', feature: 'replicas' })
  })

  it('does no I/O when it is made and closed, nor when a queue is opened', async () => {
    const connect = vi.spyOn((await import('node:net')).Socket.prototype, 'connect')
    const backend = redisBackend({ host: '127.0.0.1', port: 1 })
    const driver = backend.open('q', { close: async () => undefined })
    await driver.close()
    await backend.close()
    expect(connect).not.toHaveBeenCalled()
  })
})
