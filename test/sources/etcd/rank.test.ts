/** Places sort as text in the order in which messages are delivered. */
import { describe, expect, it } from 'vitest'
import { arrivalText } from '../../../src/sources/etcd/keys.js'
import { advanced, afterPriority, epochText, type RankRule, rankOf } from '../../../src/sources/etcd/rank.js'

const strict: RankRule = { epoch: 0, ageing: null }
const ageing: RankRule = { epoch: 1, ageing: { stepMs: 1_000, cap: 10 } }

const placed = (priority: number, turn: number, arrivedAt = 0, index = 0) => ({
  priority,
  arrivedAt,
  arrival: arrivalText({ turn, index }),
})

function inOrder(rule: RankRule, messages: readonly ReturnType<typeof placed>[]): void {
  const ranks = messages.map((message) => rankOf(message, rule))
  expect(ranks.toSorted()).toEqual(ranks)
  expect(new Set(ranks).size).toBe(ranks.length)
}

describe('the place of a message', () => {
  it('N56 is by priority, then by arrival, then by its place in the batch', () => {
    inOrder(strict, [
      placed(0, 2),
      placed(0, 2, 0, 1),
      placed(0, 3),
      placed(1, 1),
      placed(255, 1),
      placed(256, 0),
      placed(65_535, 0),
    ])
  })

  it.each([2 ** 31, 2 ** 32, 2 ** 52])('F14 sorts beyond %d arrivals', (turn) => {
    inOrder(strict, [placed(3, 9), placed(3, turn - 1), placed(3, turn), placed(3, turn + 1)])
  })

  it('N59 yields to waiting: a step of priority is worth its milliseconds', () => {
    inOrder(ageing, [placed(1, 1, 1_000), placed(0, 2, 2_001), placed(1, 3, 1_002), placed(2, 4, 1_002)])
  })

  it('N60 is above the cap behind all others, in strict order', () => {
    inOrder(ageing, [placed(10, 9, 1_796_000_000_000), placed(11, 1, 0), placed(12, 0, 0)])
  })

  it('begins with the number of the rule it was reckoned by', () => {
    expect(rankOf(placed(65_535, 9), strict) < epochText(1)).toBe(true)
    expect(rankOf(placed(0, 0), ageing) > epochText(1)).toBe(true)
  })

  it('has an end of its priority behind it', () => {
    const end = afterPriority(rankOf(placed(5, 1), strict))
    expect(rankOf(placed(5, 2 ** 52, 0, 4_000), strict) < end).toBe(true)
    expect(rankOf(placed(6, 0), strict) > end).toBe(true)
  })

  it('E5 can be moved on by turns, or by milliseconds of waiting', () => {
    const rank = rankOf(placed(5, 100), strict)
    expect(advanced(rank, 10) > rankOf(placed(5, 109, 0, 9), strict)).toBe(true)
    expect(advanced(rank, 10) <= rankOf(placed(5, 110), strict)).toBe(true)
    const aged = rankOf(placed(1, 100, 5_000), ageing)
    expect(advanced(aged, 50) > rankOf(placed(1, 900, 5_049), ageing)).toBe(true)
    expect(advanced(aged, 50) <= rankOf(placed(1, 1, 5_050), ageing)).toBe(true)
  })
})
