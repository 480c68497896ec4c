/** Ctrl-C and its like, as abort signals. */
import type { Stops } from './pipeline.js'

const SIGNALS = ['SIGINT', 'SIGTERM'] as const

export interface SignalWatch extends Stops {
  /** Lets the process be killed again as usual. */
  end(): void
}

/** The first signal stops, the second kills; a third takes its usual course. */
export function watchSignals(onStop: () => void): SignalWatch {
  const stop = new AbortController()
  const kill = new AbortController()
  const end = () => SIGNALS.forEach((name) => void process.off(name, listener))
  const listener = (name: NodeJS.Signals) => {
    if (stop.signal.aborted) {
      end()
      return kill.abort(new Error(`second signal: ${name}`))
    }
    stop.abort(new Error(`signal: ${name}`))
    onStop()
  }
  for (const name of SIGNALS) process.on(name, listener)
  return { stop: stop.signal, kill: kill.signal, end }
}

/** A reader that has gone away (`| head`) is no reason to crash: the audit goes on, unseen. */
export function tolerateClosedPipes(): void {
  for (const stream of [process.stdout, process.stderr]) {
    stream.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code !== 'EPIPE') throw error
    })
  }
}
