/**
 * One native listener per abort signal, however many wait on it.
 *
 * A signal that lives as long as the application is passed to thousands of waits; a listener for each would be
 * slow to remove, and warns from the eleventh. Also takes signals of other realms and polyfills.
 */
const hubs = new WeakMap<AbortSignal, SignalHub>()

/** Calls `work` once when the signal aborts; at once if it has. The returned function forgets it. */
export function onAbort(signal: AbortSignal | undefined, work: () => void): () => void {
  if (signal === undefined) return nothing
  if (signal.aborted) {
    work()
    return nothing
  }
  let hub = hubs.get(signal)
  if (!hub) {
    hub = new SignalHub(signal)
    hubs.set(signal, hub)
  }
  return hub.add(work)
}

class SignalHub {
  private readonly works = new Set<{ run: () => void }>()
  private readonly fire = () => this.run()

  constructor(private readonly signal: AbortSignal) {}

  add(work: () => void): () => void {
    const entry = { run: work }
    if (this.works.size === 0) this.signal.addEventListener('abort', this.fire, { once: true })
    this.works.add(entry)
    return () => this.remove(entry)
  }

  private remove(entry: { run: () => void }): void {
    if (this.works.delete(entry) && this.works.size === 0) this.signal.removeEventListener('abort', this.fire)
  }

  private run(): void {
    const works = [...this.works]
    this.works.clear()
    for (const work of works) work.run()
  }
}

function nothing(): void {}
