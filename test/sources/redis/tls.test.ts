import { execFileSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { BackendUnavailableError } from 'millrace'
import { afterAll, describe, expect, it } from 'vitest'
import { reservePort } from '../../support/servers/free-ports.js'
import { startRedis } from '../../support/servers/redis-server.js'
import { backendOn, Client, failureOf, queueOn } from './harness.js'

const folder = mkdtempSync(join(tmpdir(), 'millrace-tls-'))
const [keyFile, certFile] = [join(folder, 'key.pem'), join(folder, 'cert.pem')]
execFileSync(
  'openssl',
  [
    ...['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2'],
    ...['-keyout', keyFile, '-out', certFile, '-subj', '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost'],
  ],
  { stdio: 'ignore' },
)
const { port, release } = await reservePort()
const files = ['--tls-cert-file', certFile, '--tls-key-file', keyFile, '--tls-ca-cert-file', certFile]
const server = await startRedis({ args: ['--tls-port', String(port), '--tls-auth-clients', 'no', ...files] })
await server.command('ACL', 'SETUSER', 'worker', 'on', '>p:w@d/1', '~millrace:*', '&millrace:*', '+@all')
const ca = readFileSync(certFile)

afterAll(async () => {
  await server.stop()
  await release()
  rmSync(folder, { recursive: true, force: true })
})

describe('a server that speaks TLS', () => {
  it('is reached by options, with the certificate of the caller, for commands and hints', async () => {
    const target = { host: 'localhost', family: 4, port, tls: { ca } }
    const queue = queueOn(backendOn(target), {}, 'by-options')
    const waiting = queue.receive({ timeoutMs: 4_000 })
    await expect.poll(() => server.command('PUBSUB', 'CHANNELS')).toEqual(['millrace:{by-options}:h'])
    await queue.enqueue('x')
    expect((await waiting)?.payload).toBe('x')
  })

  it('is reached by options with a user and a password', async () => {
    const user = { username: 'worker', password: 'p:w@d/1' }
    const client = new Client(backendOn({ host: 'localhost', family: 4, port, tls: { ca }, ...user }))
    await client.enqueue('a')
    expect(await client.drain()).toEqual(['a'])
    expect(String(await server.command('CLIENT', 'LIST'))).toContain('user=worker')
  })

  it('is reached by a rediss URL with escaped user and password, and refused where its certificate is not known', async () => {
    const url = `rediss://worker:${encodeURIComponent('p:w@d/1')}@localhost:${port}/0?family=4`
    const error = await failureOf(() => new Client(backendOn(url)).stats())
    expect(error).toBeInstanceOf(BackendUnavailableError)
    expect(error.message).toMatch(/self-signed certificate/)
  })

  it('is not reached in plain words', async () => {
    const error = await failureOf(() => new Client(backendOn(`redis://localhost:${port}?family=4`)).stats())
    expect(error).toBeInstanceOf(BackendUnavailableError)
  })
})

describe('a user of the server', () => {
  it('is named in a URL, where the password may hold anything that is escaped', async () => {
    const url = `redis://worker:${encodeURIComponent('p:w@d/1')}@127.0.0.1:${server.port}`
    const client = new Client(backendOn(url))
    await client.enqueue('a')
    expect(await client.drain()).toEqual(['a'])
  })
})
