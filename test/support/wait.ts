/** Fulfils when the condition holds; fails, naming it, when it has not within the deadline. */
export async function until(
  what: string,
  condition: () => boolean | Promise<boolean>,
  deadlineMs = 4_000,
): Promise<void> {
  const begin = performance.now()
  while (!(await condition())) {
    const waitedMs = performance.now() - begin
    if (waitedMs > deadlineMs) throw new Error(`not within ${deadlineMs} ms: ${what}`)
    // The longer it takes, the less it matters to know at once; who asks a server takes its time.
    await pause(Math.min(100, Math.max(2, waitedMs / 8)))
  }
}

/** A promise and its two ends. */
export function gate<T = void>(): { readonly promise: Promise<T>; open(value: T): void; fail(error: unknown): void } {
  let open!: (value: T) => void
  let fail!: (error: unknown) => void
  const promise = new Promise<T>((resolve, reject) => {
    open = resolve
    fail = reject
  })
  return { promise, open, fail }
}

/** Lets time pass: for what is not to happen meanwhile, or takes that long by itself. What will happen is waited for. */
export function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms))
}

/** One turn of the event loop. */
export function turn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve))
}
