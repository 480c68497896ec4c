import type { Cluster, Redis } from 'ioredis'
import type { Backend } from 'millrace'
import { type RedisTarget, redisBackend } from 'millrace/redis'
import { conformance } from 'millrace/testing'
import { afterAll } from 'vitest'
import { ALL, type Share, sharing } from '../../support/share.js'

/** A set-up of real servers. */
export interface Deployment {
  /** What a caller hands to `redisBackend`. */
  readonly target: RedisTarget
  /** For looking at keys. */
  readonly client: Redis | Cluster
  stop(): Promise<unknown>
}

/** The conformance suite on a deployment. Each test has keys of its own, so that none sees those of another. */
export function redisConformance(name: string, deployment: Deployment, share: Share = ALL): void {
  const tags = new Map<Backend, string>()
  let count = 0
  const opened = (hashTag: string): Backend => {
    const backend = redisBackend(deployment.target, { hashTag })
    tags.set(backend, hashTag)
    return backend
  }
  const tagOf = (backend: Backend) => tags.get(backend) as string

  afterAll(async () => {
    deployment.client.disconnect()
    await deployment.stop()
  })

  conformance({
    name,
    backend: () => {
      count += 1
      return opened(`t${count}`)
    },
    another: (backend) => opened(tagOf(backend)),
    leftovers: (backend, queue) => deployment.client.hkeys(`millrace:{${tagOf(backend)}}:${queue}:m`),
    ...sharing(share),
  })
}
