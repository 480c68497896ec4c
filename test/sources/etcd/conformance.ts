import type { Backend } from 'millrace'
import { etcdBackend } from 'millrace/etcd'
import { conformance } from 'millrace/testing'
import { afterAll, describe, it } from 'vitest'
import { startEtcd } from '../../support/servers/etcd-server.js'

/** Every so-manieth scenario, from one of them on: its leases last for seconds, so several processes share the suite. */
export interface Share {
  readonly first: number
  readonly every: number
}

/** Runs a share of the conformance suite on a server of its own. */
export async function etcdConformance({ first, every }: Share): Promise<void> {
  const server = await startEtcd()
  const prefixes = new Map<Backend, string>()
  let opened = 0
  let scenarios = 0

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
    describe,
    it: (title, body) => {
      if (scenarios % every === first) it(title, body)
      scenarios += 1
    },
  })
}
