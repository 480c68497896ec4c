import type { Queue } from 'millrace'

export interface Blocked {
  readonly held?: string
  readonly aborted?: boolean
  readonly why?: string
  readonly settlement?: string
}

/** Claims one, runs for two leases without a turn for anything else, and then acks. */
export async function block(queue: Queue<string>, leaseMs: number): Promise<void> {
  const say = (blocked: Blocked) => process.send?.(blocked)
  const delivery = await queue.receive()
  if (delivery === undefined) throw new Error('nothing came')
  await new Promise((resolve) => process.send?.({ held: delivery.id } satisfies Blocked, resolve))
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2 * leaseMs)
  // Whoever looks before settling sees it, at the first turn that there is.
  await new Promise((resolve) => setTimeout(resolve, 1))
  const { aborted, reason } = delivery.signal
  say({ aborted, why: reason?.why })
  say({ settlement: await delivery.ack() })
  await queue.close()
  process.disconnect()
}
