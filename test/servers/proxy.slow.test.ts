import { once } from 'node:events'
import { connect } from 'node:net'
import { Redis, type RedisOptions } from 'ioredis'
import { beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest'
import { named, type RedisProxy, startProxy } from '../support/servers/proxy.js'
import { type RedisServer, startRedis } from '../support/servers/redis-server.js'
import { startTcpProxy } from '../support/servers/tcp-proxy.js'
import { until } from '../support/wait.js'

let server: RedisServer
let proxy: RedisProxy

beforeAll(async () => {
  server = await startRedis()
  return () => server.stop()
})

beforeEach(async () => {
  await server.command('FLUSHALL')
  proxy = await startProxy(server.port)
  return () => proxy.stop()
})

/** A client whose commands fail with their connection, which does not come back by itself. */
async function client(options: RedisOptions = {}): Promise<Redis> {
  const redis = new Redis(proxy.port, '127.0.0.1', { retryStrategy: () => null, lazyConnect: true, ...options })
  onTestFinished(() => redis.disconnect())
  redis.on('error', () => {})
  await redis.connect()
  return redis
}

const silence = (ms = 150) => new Promise((resolve) => setTimeout(resolve, ms, 'silent'))
const outcomeOf = (reply: Promise<unknown>) => reply.catch((error: Error) => error.message)

describe('dropping replies', () => {
  it('runs the command, and lets no reply arrive', async () => {
    const redis = await client()
    const { dropped } = proxy.dropReply({ match: named('incr') })
    expect(await redis.set('a', 1)).toBe('OK')
    expect(await outcomeOf(redis.incr('a'))).toContain('closed')
    expect((await dropped).join(' ')).toBe('incr a')
    expect(await server.command('GET', 'a')).toBe('2')
  })

  it('drops the nth, passing on what came before, and cuts what comes behind in the pipeline', async () => {
    const redis = await client()
    const { dropped } = proxy.dropReply({ nth: 3, match: named('rpush') })
    const replies = ['a', 'b', 'c', 'd'].map((value) => outcomeOf(redis.rpush('list', value)))
    const [first, second, third, fourth] = await Promise.all(replies)
    await dropped
    expect([first, second]).toEqual([1, 2])
    expect(third).toContain('closed')
    expect(fourth).toContain('closed')
    expect(await server.command('LRANGE', 'list', 0, 2)).toEqual(['a', 'b', 'c'])
  })

  it('waits for the whole of a large reply, and passes on none of it', async () => {
    const redis = await client()
    await redis.set('large', 'x'.repeat(3_000_000))
    proxy.dropReply({ match: named('getset') })
    expect(await outcomeOf(redis.getset('large', 'small'))).toContain('closed')
    expect(await server.command('GET', 'large')).toBe('small')
  })

  it('waits for a command that blocks in the server', async () => {
    const redis = await client()
    const { dropped } = proxy.dropReply({ match: named('blpop') })
    const popped = outcomeOf(redis.blpop('list', 0))
    expect(await Promise.race([popped, silence()])).toBe('silent')
    await server.command('RPUSH', 'list', 'a')
    await dropped
    expect(await popped).toContain('closed')
    expect(await server.command('LLEN', 'list')).toBe(0)
  })

  it('is seen by a client with the settings of ioredis, which sends the command again', async () => {
    const redis = await client({ retryStrategy: () => 10 })
    proxy.dropReply({ match: named('incr') })
    expect(await redis.incr('a')).toBe(2)
    expect(proxy.count(named('incr'))).toBe(2)
  })

  it('resets the connection: the client is told by an error, not by an end', async () => {
    const socket = connect(proxy.port, '127.0.0.1')
    let heard = ''
    socket.on('data', (chunk) => (heard += chunk))
    socket.write('PING\r\n')
    // Node takes a reset for an end when there are bytes to be read before it.
    await until('the first is answered', () => heard === '+PONG\r\n')
    const failed = once(socket, 'error')
    proxy.dropReply()
    socket.write('INCR a\r\nPING\r\n')
    expect(await failed).toMatchObject([{ code: 'ECONNRESET' }])
    expect(heard).toBe('+PONG\r\n')
  })

  it('passes on what came before in the same chunk', async () => {
    const socket = connect(proxy.port, '127.0.0.1')
    let heard = ''
    socket.on('data', (chunk) => (heard += chunk))
    socket.on('error', () => {})
    proxy.dropReply({ nth: 2 })
    const closed = new Promise((resolve) => socket.once('close', resolve))
    socket.write('PING\r\nINCR a\r\nPING\r\n')
    await closed
    expect(heard).toBe('+PONG\r\n')
    expect(await server.command('GET', 'a')).toBe('1')
  })

  it('passes all when cancelled', async () => {
    const redis = await client()
    proxy.dropReply({ match: named('incr') }).cancel()
    expect(await redis.incr('a')).toBe(1)
  })

  it('does not take messages for replies', async () => {
    const redis = await client()
    const messages: string[] = []
    redis.on('message', (_, message) => messages.push(message))
    await redis.subscribe('news', 'more')
    await server.command('PUBLISH', 'news', 'one')
    await until('a message is there', () => messages.length === 1)
    proxy.dropReply({ match: named('unsubscribe') })
    await server.command('PUBLISH', 'more', 'two')
    await until('a message is there', () => messages.length === 2)
    expect(await outcomeOf(redis.unsubscribe('news'))).toContain('closed')
    expect(messages).toEqual(['one', 'two'])
  })

  it('follows RESP3', async () => {
    const socket = connect(proxy.port, '127.0.0.1')
    onTestFinished(() => void socket.destroy())
    let heard = ''
    socket.on('data', (chunk) => (heard += chunk))
    socket.write('HELLO 3\r\nCLIENT TRACKING ON\r\nGET a\r\nCONFIG GET maxmemory\r\n')
    await until('all is answered', () => heard.endsWith('%1\r\n$9\r\nmaxmemory\r\n$1\r\n0\r\n'))
    await server.command('SET', 'a', 1)
    await until('the push is there', () => heard.includes('invalidate'))
    const { dropped } = proxy.dropReply({ match: named('incr') })
    const failed = once(socket, 'error')
    socket.write('INCR a\r\n')
    await dropped
    await failed
    expect(heard).not.toContain(':2\r\n')
    expect(await server.command('GET', 'a')).toBe('2')
  })
})

describe('counting', () => {
  it('logs the commands of all connections', async () => {
    const [one, two] = [await client(), await client()]
    proxy.forget()
    const seen: string[] = []
    onTestFinished(proxy.onCommand(({ name, connection }) => seen.push(`${connection} ${name}`)))
    await one.set('a', 1)
    await two.get('a')
    await two.multi().get('a').exec()
    expect(seen).toEqual(['1 set', '2 get', '2 multi', '2 get', '2 exec'])
    expect([proxy.count(), proxy.count(named('GET')), proxy.count(named('del'))]).toEqual([5, 2, 0])
    expect(proxy.commands[0]?.args.map(String)).toEqual(['set', 'a', '1'])
  })

  it('passes bytes as they are', async () => {
    const redis = await client()
    const bytes = Buffer.from(Array.from({ length: 200_000 }, (_, index) => (index * 7 + (index >> 8)) % 256))
    await redis.set('a', bytes)
    expect((await redis.getBuffer('a'))?.equals(bytes)).toBe(true)
  })
})

describe('the network', () => {
  it('delays replies, in order', async () => {
    const redis = await client()
    proxy.delay(100)
    const began = performance.now()
    expect(await Promise.all([redis.incr('a'), redis.incr('a')])).toEqual([1, 2])
    expect(performance.now() - began).toBeGreaterThan(95)
    proxy.delay(0)
    expect(await redis.incr('a')).toBe(3)
  })

  it('holds replies: the server has run it, the client does not know', async () => {
    const redis = await client()
    proxy.hold('replies')
    const reply = redis.incr('a')
    await until('it ran', async () => (await server.command('GET', 'a')) === '1')
    expect(await Promise.race([reply, silence()])).toBe('silent')
    proxy.resume()
    expect(await reply).toBe(1)
  })

  it('holds requests: the server does not know', async () => {
    const redis = await client()
    proxy.hold('requests')
    const reply = redis.incr('a')
    expect(await Promise.race([reply, silence()])).toBe('silent')
    expect(await server.command('GET', 'a')).toBeNull()
    proxy.resume('requests')
    expect(await reply).toBe(1)
  })

  it('is silent in both directions, also to those who come new', async () => {
    const redis = await client()
    proxy.hold()
    const late = new Redis(proxy.port, '127.0.0.1')
    onTestFinished(() => late.disconnect())
    const replies = [redis.incr('a'), late.incr('a')]
    await once(late, 'connect')
    expect(await Promise.race([...replies, silence()])).toBe('silent')
    expect(await server.command('GET', 'a')).toBeNull()
    proxy.resume()
    expect((await Promise.all(replies)).sort()).toEqual([1, 2])
  })

  it('keeps from the server that a client has hung up, until it resumes', async () => {
    const redis = await client()
    const id = String(await redis.client('ID'))
    const isThere = async () => String(await server.command('CLIENT', 'LIST', 'ID', id)).includes(`id=${id}`)
    proxy.hold()
    redis.disconnect()
    await silence()
    expect(await isThere()).toBe(true)
    proxy.resume()
    await until('the server knows', async () => !(await isThere()))
  })

  it('resets all connections', async () => {
    const redis = await client()
    const error = once(redis, 'error')
    const reply = outcomeOf(redis.blpop('list', 0))
    await until('it waits', () => proxy.count(named('blpop')) === 1)
    proxy.resetAll()
    expect(await error).toMatchObject([{ code: 'ECONNRESET' }])
    expect(await reply).toContain('closed')
    await until('none is left', () => proxy.connections === 0)
  })

  it('refuses new connections and keeps old ones', async () => {
    const redis = await client()
    await proxy.refuse()
    await expect(client()).rejects.toThrow()
    const late = connect(proxy.port, '127.0.0.1')
    expect(await once(late, 'error')).toMatchObject([{ code: 'ECONNREFUSED' }])
    expect(await redis.ping()).toBe('PONG')
    await proxy.accept()
    expect(await (await client()).ping()).toBe('PONG')
  })

  it('resets a client when the server is not there', async () => {
    const other = await startTcpProxy(1)
    onTestFinished(() => other.stop())
    expect(await once(connect(other.port, '127.0.0.1'), 'error')).toMatchObject([{ code: 'ECONNRESET' }])
  })
})
