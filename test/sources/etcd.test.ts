import type { Backend } from 'millrace'
import { etcdBackend } from 'millrace/etcd'
import { conformance } from 'millrace/testing'
import { afterAll, describe, it } from 'vitest'
import { startEtcd } from '../support/servers/etcd-server.js'

const server = await startEtcd()
const prefixes = new Map<Backend, string>()
let count = 0

/** Each test has keys of its own, so that none sees those of another. */
function opened(prefix: string): Backend {
  const backend = etcdBackend({ hosts: server.url, prefix })
  prefixes.set(backend, prefix)
  return backend
}

/** Keys that messages leave: not those of the queue itself, which begin with `s/` and `w/`. */
async function leftovers(backend: Backend, queue: string): Promise<string[]> {
  const root = `${prefixes.get(backend)}millrace/${queue}/`
  const keys = await server.gateway.keys(root)
  return keys.filter((key) => !/^[sw]\//.test(key.slice(root.length)))
}

afterAll(() => server.stop())

conformance({
  name: 'etcd',
  backend: () => {
    count += 1
    return opened(`t${count}/`)
  },
  another: (backend) => opened(prefixes.get(backend) as string),
  leftovers,
  describe,
  it,
})
