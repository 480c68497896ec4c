import { readdirSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { compile, folderOf, outputOf, programsIn, promisedOutput } from './document-code.js'

describe('README.md', () => {
  const programs = programsIn('README.md')

  it('has programs', () => {
    expect(programs.length).toBeGreaterThanOrEqual(5)
  })

  it('has programs that compile', async () => {
    expect(await compile(folderOf(programs))).toBe('')
  })

  it('has programs that print what they say', async () => {
    const folder = folderOf(programs)
    const outputs = await Promise.all(programs.map((_, index) => outputOf(folder, index)))
    expect(outputs).toEqual(programs.map(promisedOutput))
  })
})

describe('docs', () => {
  it('have programs that compile', async () => {
    const documents = readdirSync(new URL('../../docs', import.meta.url)).filter((name) => name.endsWith('.md'))
    expect(await compile(folderOf(documents.flatMap((name) => programsIn(`docs/${name}`))))).toBe('')
  })
})
