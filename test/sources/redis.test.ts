import { conformance } from 'millrace/testing'
import { describe, it } from 'vitest'
import { redisBackend } from '../../src/sources/redis/index.js'

let tags = 0
const names = new Map<unknown, string>()
const open = (tag: string) => {
  const backend = redisBackend('redis://127.0.0.1:7411', { hashTag: tag })
  names.set(backend, tag)
  return backend
}
conformance({
  name: 'redis',
  backend: () => open(`${process.pid}-${++tags}-${Date.now()}`),
  another: (backend) => open(names.get(backend) as string),
  describe,
  it,
})
