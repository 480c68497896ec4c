/** How far the audit is: a bar on a terminal, a line for each tenth elsewhere. */

export interface Progress {
  /** One more is done. */
  step(): void
  /** Nothing more will be. */
  end(): void
}

/** What is drawn on: `process.stderr`, say. */
export interface Screen {
  readonly isTTY: boolean
  readonly columns?: number
  write(text: string): unknown
}

/** A terminal need not be drawn on more often than anybody can see. */
const REDRAW_MS = 50

export function showProgress(screen: Screen, done: number, total: number): Progress {
  return screen.isTTY ? bar(screen, done, total) : lines(screen, done, total)
}

function bar(screen: Screen, done: number, total: number): Progress {
  let drawnAt = Number.NEGATIVE_INFINITY
  const draw = () => {
    drawnAt = performance.now()
    screen.write(`\r${barText(done, total, barWidth(screen))}\x1b[K`)
  }
  draw()
  return {
    step() {
      done += 1
      if (performance.now() - drawnAt >= REDRAW_MS) draw()
    },
    end() {
      draw()
      screen.write('\n')
    },
  }
}

/** A terminal that does not know its size says 0 columns; on a narrow one the bar gives way to the numbers. */
function barWidth({ columns }: Screen): number {
  return Math.max(0, Math.min((columns || 80) - 20, 50))
}

function barText(done: number, total: number, width: number): string {
  const filled = total === 0 ? width : Math.round((done / total) * width)
  return `[${'#'.repeat(filled)}${'.'.repeat(width - filled)}] ${done}/${total}`
}

function lines(screen: Screen, done: number, total: number): Progress {
  const tenth = () => Math.floor((done * 10) / total)
  let told = tenth()
  return {
    step() {
      done += 1
      if (tenth() <= told) return
      told = tenth()
      screen.write(`${done} of ${total} packages\n`)
    },
    end() {},
  }
}
