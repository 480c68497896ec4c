import type { Backend } from 'millrace'
import { etcdBackend } from 'millrace/etcd'
import { conformance } from 'millrace/testing'
import { afterAll } from 'vitest'
import { startEtcd } from '../../support/servers/etcd-server.js'
import { type Share, sharing } from '../../support/share.js'

/** Runs a share of the conformance suite on a server of its own. Leases last for seconds, so several processes share it. */
export async function etcdConformance(share: Share): Promise<void> {
  const server = await startEtcd()
  const prefixes = new Map<Backend, string>()
  let opened = 0

  function open(prefix: string): Backend {
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
      // Each test has keys of its own, so that none sees those of another.
      opened += 1
      return open(`t${opened}/`)
    },
    another: (backend) => open(prefixes.get(backend) as string),
    leftovers,
    ...sharing(share),
  })
}
