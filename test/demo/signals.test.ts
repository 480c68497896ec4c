import { describe, expect, it, onTestFinished } from 'vitest'
import { watchSignals } from '../../demo/signals.js'

function watch() {
  const told: string[] = []
  const before = process.listenerCount('SIGINT')
  const signals = watchSignals(() => told.push('stopping'))
  onTestFinished(() => signals.end())
  return { signals, told, listeners: () => process.listenerCount('SIGINT') - before }
}

describe('watchSignals', () => {
  it('stops at the first signal and kills at the second, whichever they are', () => {
    const { signals, told } = watch()
    process.emit('SIGTERM', 'SIGTERM')
    expect([signals.stop.aborted, signals.kill.aborted, told]).toEqual([true, false, ['stopping']])
    process.emit('SIGINT', 'SIGINT')
    expect([signals.kill.aborted, told]).toEqual([true, ['stopping']])
  })

  it('leaves a third signal to its usual course', () => {
    const { listeners } = watch()
    expect(listeners()).toBe(1)
    process.emit('SIGINT', 'SIGINT')
    process.emit('SIGINT', 'SIGINT')
    expect(listeners()).toBe(0)
  })

  it('leaves no listener behind', () => {
    const { signals, listeners } = watch()
    signals.end()
    expect(listeners()).toBe(0)
  })
})
