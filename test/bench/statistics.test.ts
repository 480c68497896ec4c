import { describe, expect, it } from 'vitest'
import { pairedRatio, quantile, spreadOf } from '../../bench/statistics.js'

describe('quantile', () => {
  it('takes the middle value of an odd count, whatever the order', () => {
    expect(quantile([30, 10, 20], 0.5)).toBe(20)
  })

  it('interpolates between neighbours', () => {
    expect(quantile([1, 2, 3, 4], 0.5)).toBe(2.5)
    expect(quantile([0, 10], 0.99)).toBeCloseTo(9.9)
  })

  it('ends at the smallest and the largest value', () => {
    expect(quantile([5, 1, 9], 0)).toBe(1)
    expect(quantile([5, 1, 9], 1)).toBe(9)
  })

  it('leaves its argument as it was', () => {
    const values = [3, 1, 2]
    quantile(values, 0.5)
    expect(values).toEqual([3, 1, 2])
  })

  it('refuses an empty list', () => {
    expect(() => quantile([], 0.5)).toThrow(RangeError)
  })
})

it('spreadOf gives median, smallest and largest', () => {
  expect(spreadOf([4, 1, 7])).toEqual({ median: 4, min: 1, max: 7 })
})

describe('pairedRatio', () => {
  it('compares within rounds, so that a slow phase of the host cancels out', () => {
    // Twice as fast in each round, while the host itself slowed down tenfold.
    expect(pairedRatio([200, 20], [100, 10])).toEqual({ median: 2, min: 2, max: 2 })
  })

  it('refuses rounds that have no partner', () => {
    expect(() => pairedRatio([1, 2], [1])).toThrow(RangeError)
  })
})
