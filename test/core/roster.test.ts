import { describe, expect, it } from 'vitest'
import { Roster, type Rostered } from '../../src/core/roster.js'

class Guest implements Rostered<Guest> {
  roster: object | undefined
  before: Guest | undefined
  after: Guest | undefined
  constructor(readonly name: string) {}
}

function rosterOf(...names: string[]): { roster: Roster<Guest>; guests: Guest[] } {
  const roster = new Roster<Guest>()
  const guests = names.map((name) => new Guest(name))
  for (const guest of guests) roster.add(guest)
  return { roster, guests }
}

const namesOf = (roster: Roster<Guest>) => [...roster].map(({ name }) => name).join('')

describe('a roster', () => {
  it('keeps the order of arrival, whoever leaves', () => {
    for (const leaving of ['a', 'b', 'c', 'd', 'ab', 'ad', 'dc', 'bc', 'abcd', 'dcba']) {
      const { roster, guests } = rosterOf('a', 'b', 'c', 'd')
      for (const name of leaving) expect(roster.delete(guests.find((guest) => guest.name === name) as Guest)).toBe(true)
      const left = ['a', 'b', 'c', 'd'].filter((name) => !leaving.includes(name)).join('')
      expect(namesOf(roster)).toBe(left)
      expect(roster.size).toBe(left.length)
      expect(roster.first?.name).toBe(left[0])
      roster.add(new Guest('e'))
      expect(namesOf(roster)).toBe(`${left}e`)
    }
  })

  it('lets nobody leave twice, or from where they are not', () => {
    const { roster, guests } = rosterOf('a', 'b')
    const [a] = guests as [Guest, Guest]
    expect(new Roster<Guest>().delete(a)).toBe(false)
    expect(roster.delete(a)).toBe(true)
    expect(roster.delete(a)).toBe(false)
    expect(roster.size).toBe(1)
  })

  it('links those who have left to nobody, so that what is gone keeps nothing alive', () => {
    const { roster, guests } = rosterOf('a', 'b', 'c')
    for (const guest of guests) roster.delete(guest)
    for (const { roster: on, before, after } of guests)
      expect([on, before, after]).toEqual([undefined, undefined, undefined])
  })
})
