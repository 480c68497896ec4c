import type { RespCommand } from './resp-exchange.js'

export type CommandFilter = (command: RespCommand) => boolean

export interface ReplyDropOptions<C = RespCommand> {
  /** Of the commands that match from now on, the first one when not given. */
  readonly nth?: number
  /** Any command when not given: a client sends some of its own when it connects. */
  readonly match?: (command: C) => boolean
}

/** A reply that will not arrive. */
export interface ReplyDrop<C = RespCommand> {
  /**
   * Fulfils with the command when the server has run it and the connection is being cut. It never does when the
   * connection is lost before the server has answered.
   */
  readonly dropped: Promise<C>
  /** Lets the reply pass, unless it is too late. */
  cancel(): void
}

/** A command on its way, and who wants its reply dropped. */
export interface SentCommand<C = RespCommand> {
  readonly command: C
  readonly drops: readonly Drop<C>[]
}

interface Drop<C> {
  readonly match: (command: C) => boolean
  readonly done: (command: C) => void
  missing: number
}

/** The replies that a proxy is to drop. */
export class ReplyDrops<C = RespCommand> {
  readonly #drops = new Set<Drop<C>>()

  add({ nth = 1, match = () => true }: ReplyDropOptions<C> = {}): ReplyDrop<C> {
    let done!: (command: C) => void
    const dropped = new Promise<C>((resolve) => {
      done = resolve
    })
    const drop = { match, done, missing: nth }
    this.#drops.add(drop)
    return { dropped, cancel: () => void this.#drops.delete(drop) }
  }

  /** Counts a command. */
  send(command: C): SentCommand<C> {
    const matching = [...this.#drops].filter(({ match }) => match(command))
    for (const drop of matching) drop.missing -= 1
    return { command, drops: matching.filter(({ missing }) => missing === 0) }
  }

  concerns(sent: SentCommand<C> | undefined): sent is SentCommand<C> {
    return sent?.drops.some((drop) => this.#drops.has(drop)) ?? false
  }

  /** The whole reply is there. */
  finish({ command, drops }: SentCommand<C>): void {
    for (const drop of drops) {
      if (this.#drops.delete(drop)) drop.done(command)
    }
  }
}
