/** The few statistics that benches report. Medians, because a busy host spoils some rounds and not most of them. */

/** The middle, and how far the rounds lay apart. */
export interface Spread {
  readonly median: number
  readonly min: number
  readonly max: number
}

/** The value below which `fraction` (0 to 1) of the values lie, interpolated between neighbours. */
export function quantile(values: readonly number[], fraction: number): number {
  if (values.length === 0) throw new RangeError('a quantile needs at least one value')
  const sorted = values.toSorted((a, b) => a - b)
  const at = (sorted.length - 1) * fraction
  const below = sorted[Math.floor(at)] as number
  const above = sorted[Math.ceil(at)] as number
  return below + (above - below) * (at - Math.floor(at))
}

export function spreadOf(values: readonly number[]): Spread {
  return { median: quantile(values, 0.5), min: Math.min(...values), max: Math.max(...values) }
}

/**
 * How one contender compares with another, from rounds that ran in pairs: the spread of the ratios within each pair.
 * What changes between rounds (a hot cache, a neighbour on the host) hits both halves of a pair and cancels out.
 */
export function pairedRatio(values: readonly number[], baseline: readonly number[]): Spread {
  if (values.length !== baseline.length) throw new RangeError('paired rounds must be equal in number')
  return spreadOf(values.map((value, round) => value / (baseline[round] as number)))
}
