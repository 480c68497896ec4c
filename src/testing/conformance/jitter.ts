/**
 * A backend whose requests and answers each take a random while, as over a network: so that a cancel can come between.
 */
import type { Backend, QueueDriver, Reply } from '../../driver.js'
import { turn } from './wait.js'

/** A few turns of the microtask queue, now and then one of the event loop. */
export async function gap(random: () => number): Promise<void> {
  if (random() < 0.1) return turn()
  for (let left = Math.floor(random() * 6); left > 0; left -= 1) await undefined
}

/** Wraps a backend. Hints are left as they are; closing it is left to who made it. */
export function jitteryBackend(backend: Backend, random: () => number): Backend {
  return {
    name: backend.name,
    features: backend.features,
    open: (queue, owner) => jitteryDriver(backend.open(queue, owner), random),
    close: async () => {},
  }
}

function jitteryDriver(driver: QueueDriver, random: () => number): QueueDriver {
  return new Proxy(driver, {
    get(target, name) {
      const member = target[name as keyof QueueDriver] as unknown
      if (typeof member !== 'function') return member
      if (name === 'arrivals') return member.bind(target)
      return (...args: unknown[]) => delayed(() => member.apply(target, args) as Reply<unknown>, random)
    },
  })
}

async function delayed(call: () => Reply<unknown>, random: () => number): Promise<unknown> {
  await gap(random)
  const [answer] = await Promise.allSettled([call()])
  await gap(random)
  if (answer.status === 'rejected') throw answer.reason
  return answer.value
}
