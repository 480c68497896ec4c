import type { RespCommand } from './resp-exchange.js'

export type CommandFilter = (command: RespCommand) => boolean

export interface ReplyDropOptions {
  /** Of the commands that match from now on, the first one when not given. */
  readonly nth?: number
  /** Any command when not given: a client sends some of its own when it connects. */
  readonly match?: CommandFilter
}

/** A reply that will not arrive. */
export interface ReplyDrop {
  /**
   * Fulfils with the command when the server has run it and the connection is being cut. It never does when the
   * connection is lost before the server has answered.
   */
  readonly dropped: Promise<RespCommand>
  /** Lets the reply pass, unless it is too late. */
  cancel(): void
}

/** A command on its way, and who wants its reply dropped. */
export interface SentCommand {
  readonly command: RespCommand
  readonly drops: readonly Drop[]
}

interface Drop {
  readonly match: CommandFilter
  readonly done: (command: RespCommand) => void
  missing: number
}

/** The replies that a proxy is to drop. */
export class ReplyDrops {
  readonly #drops = new Set<Drop>()

  add({ nth = 1, match = () => true }: ReplyDropOptions = {}): ReplyDrop {
    let done!: (command: RespCommand) => void
    const dropped = new Promise<RespCommand>((resolve) => {
      done = resolve
    })
    const drop = { match, done, missing: nth }
    this.#drops.add(drop)
    return { dropped, cancel: () => void this.#drops.delete(drop) }
  }

  /** Counts a command. */
  send(command: RespCommand): SentCommand {
    const matching = [...this.#drops].filter(({ match }) => match(command))
    for (const drop of matching) drop.missing -= 1
    return { command, drops: matching.filter(({ missing }) => missing === 0) }
  }

  concerns(sent: SentCommand | undefined): sent is SentCommand {
    return sent?.drops.some((drop) => this.#drops.has(drop)) ?? false
  }

  /** The whole reply is there. */
  finish({ command, drops }: SentCommand): void {
    for (const drop of drops) {
      if (this.#drops.delete(drop)) drop.done(command)
    }
  }
}
