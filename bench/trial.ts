/** What the benches of servers share: a part of what they measure, for a try. */
import type { Scenario } from './runner.js'

/** `BENCH_SHARE=0.01 npm run bench -- redis` is a trial: so small a share of the messages, in one round. */
const SHARE = Number(process.env['BENCH_SHARE'] ?? 1)
const isTrial = SHARE < 1

export const ROUNDS = isTrial ? 1 : 5

export function scaled(count: number): number {
  return Math.max(1, Math.round(count * SHARE))
}

/** `npm run bench -- redis claim: batches` runs the scenarios that have these words in their titles. */
export function chosen(scenarios: readonly Scenario[], words = process.argv.slice(2)): Scenario[] {
  return scenarios
    .filter(({ title }) => words.every((word) => title.includes(word)))
    .map((scenario) => (isTrial ? { ...scenario, rounds: 1 } : scenario))
}

/** One run on an own connection. */
export async function withConnection<A, C extends { close(): Promise<unknown> }, R>(
  product: { connect(address: A): Promise<C> },
  address: A,
  work: (connection: C) => Promise<R>,
): Promise<R> {
  const connection = await product.connect(address)
  try {
    return await work(connection)
  } finally {
    await connection.close()
  }
}
