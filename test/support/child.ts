import { type ChildProcess, type SpawnOptions, spawn } from 'node:child_process'
import { once } from 'node:events'
import { onTestFinished } from 'vitest'

/** A program in a process of its own, which speaks in messages. It is killed when the test ends. */
export class Child<Said> {
  readonly process: ChildProcess
  /** What it has said so far. */
  readonly said: Said[] = []
  #waiting: (() => void)[] = []
  #err = ''
  readonly #ended: Promise<number | NodeJS.Signals | null>

  constructor(program: string, args: readonly string[] = [], run: readonly string[] = [process.execPath]) {
    const [command, ...before] = run
    const options: SpawnOptions = { stdio: ['ignore', 'inherit', 'pipe', 'ipc'] }
    this.process = spawn(command as string, [...before, program, ...args], options)
    onTestFinished(() => void this.process.kill('SIGKILL'))
    this.process.stderr?.on('data', (chunk) => (this.#err += chunk))
    this.process.on('message', (message) => {
      this.said.push(message as Said)
      this.#wake()
    })
    this.#ended = once(this.process, 'close').then(([code, signal]) => {
      this.#wake()
      return signal ?? code
    })
  }

  tell(message: unknown): void {
    this.process.send?.(message as object)
  }

  /** The first thing said that fits; rejects when the program ends without having said it. */
  async hear<S extends Said>(fits: (said: Said) => said is S): Promise<S>
  async hear(fits?: (said: Said) => boolean): Promise<Said>
  async hear(fits: (said: Said) => boolean = () => true): Promise<Said> {
    for (;;) {
      const found = this.said.find(fits)
      if (found !== undefined) return found
      const { exitCode, signalCode } = this.process
      if (exitCode !== null || signalCode !== null) throw new Error(`ended (${exitCode ?? signalCode}): ${this.#err}`)
      await new Promise<void>((resolve) => this.#waiting.push(resolve))
    }
  }

  /** Fulfils when it has ended by itself, with its code; what it wrote to stderr fails it. */
  async end(): Promise<void> {
    const code = await this.#ended
    if (code !== 0) throw new Error(`ended with ${code}: ${this.#err}`)
  }

  /** Ends it at once, as `kill -9` does. Fulfils when it is gone. */
  async kill(): Promise<void> {
    this.process.kill('SIGKILL')
    await this.#ended
  }

  #wake(): void {
    for (const resume of this.#waiting.splice(0)) resume()
  }
}
