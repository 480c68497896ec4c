/**
 * What has been asked for, so that a repeat gets the first answer.
 *
 * A session is one opened queue of this process, so its answers are remembered here; what the store has to remember is
 * only whether the transaction in flight was carried out.
 */
import { type RequestToken, tokenExpired } from '../../driver.js'

/** One request, however often it is asked for. */
export class Asked<T> {
  readonly #waiting: { readonly resolve: (value: T) => void; readonly reject: (error: unknown) => void }[] = []
  #end: { readonly value: T } | { readonly error: unknown } | undefined

  get isOpen(): boolean {
    return this.#end === undefined
  }

  answer(): Promise<T> {
    return new Promise((resolve, reject) => {
      if (this.#end === undefined) this.#waiting.push({ resolve, reject })
      else if ('value' in this.#end) resolve(this.#end.value)
      else reject(this.#end.error)
    })
  }

  succeed(value: T): void {
    if (!this.isOpen) return
    this.#end = { value }
    for (const { resolve } of this.#waiting.splice(0)) resolve(value)
  }

  fail(error: unknown): void {
    if (!this.isOpen) return
    this.#end = { error }
    this.trouble(error)
  }

  /** Those who wait are told that it is not answered; it may be asked for again, and goes on. */
  trouble(error: unknown): void {
    for (const { reject } of this.#waiting.splice(0)) reject(error)
  }
}

interface Session {
  floor: number
  readonly asked: Map<number, Asked<never>>
}

export class TokenBook {
  readonly #sessions = new Map<string, Session>()

  /** The request of this token if it was asked for before. Throws when that is too long ago to know. */
  recall(token: RequestToken): Asked<never> | undefined {
    const { session: name, seq, floor } = token
    const session = this.#open(name)
    if (floor > session.floor) this.#raise(session, floor)
    if (seq < session.floor) throw tokenExpired(token)
    return session.asked.get(seq)
  }

  remember({ session, seq }: RequestToken, asked: Asked<never>): void {
    this.#open(session).asked.set(seq, asked)
  }

  /** It was not carried out, and may be asked for as if it were new. */
  forget({ session, seq }: RequestToken): void {
    this.#open(session).asked.delete(seq)
  }

  #open(name: string): Session {
    let session = this.#sessions.get(name)
    if (session === undefined) {
      session = { floor: 0, asked: new Map() }
      this.#sessions.set(name, session)
    }
    return session
  }

  #raise(session: Session, floor: number): void {
    session.floor = floor
    for (const seq of session.asked.keys()) {
      if (seq >= floor) break
      session.asked.delete(seq)
    }
  }
}
